"""`ClientUnderWay`: what the main thread of a client's process does."""

from __future__ import annotations

import threading
from time import monotonic, time

from dasfprof.recording.dask_internals.inspection import stacks, waits
from dasfprof.recording.under_way.repeats import Busy, Repeats
from dasfprof.recording.under_way.rows import UnderWayRows
from dasfprof.schema.under_way import CLIENT_UNDER_WAY


class ClientUnderWay:
    """Writes rows of the main thread. Called in another thread, once a second.

    Parameters
    ----------
    client
        The client's id.
    rows
        Where they go.
    """

    def __init__(self, client: str, rows: UnderWayRows) -> None:
        self._client = client
        self._rows = rows
        self._busy = Busy()
        self._repeats = Repeats(monotonic())
        self._stack: stacks.Stack = ()
        self._since = time()

    def look(self) -> None:
        """Write what is due."""
        thread = threading.main_thread().ident
        frame = None if thread is None else stacks.current_frames().get(thread)
        if thread is None or frame is None:  # it has ended, and others keep the process alive
            return
        frames = stacks.frames_of_thread(frame, None)
        now, stack = monotonic(), stacks.stack_of(frames)
        asleep, cpu = stacks.Threads().state(thread), stacks.thread_cpu(thread)
        state = self._busy.state(asleep, cpu, now)
        if stack != self._stack:
            self._stack, self._since = stack, time()
        wait = waits.wait_in(frames)
        if not self._repeats.is_due(now, (stack, wait), state):
            return
        kind, name, keys = wait or (None, None, [])
        facts = {
            "client": self._client,
            "since": self._since,
            "thread_state": state,
            "waits_in": kind,
            "waits_for": name,
            "waits_keys": keys,
        }
        self._rows.write(CLIENT_UNDER_WAY, facts, stack)
