"""`LoopWatch`: what an event loop does when it does not turn."""

from __future__ import annotations

import threading
from time import monotonic, time
from typing import Any

from dasfprof.recording.dask_internals.event_loop import last_turn, turn_interval
from dasfprof.recording.dask_internals.inspection import stacks
from dasfprof.recording.under_way.pulse import INTERVAL
from dasfprof.recording.under_way.repeats import Repeats
from dasfprof.recording.under_way.rows import UnderWayRows
from dasfprof.schema.under_way import LOOP_BLOCKED

#: Seconds without a turn from which a loop counts as blocked.
LIMIT = 1.0


class LoopWatch:
    """Writes rows of an event loop that is blocked. Made on that loop, called in another thread.

    Parameters
    ----------
    server
        The worker or the scheduler; only read.
    rows
        Where they go.
    """

    def __init__(self, server: Any, rows: UnderWayRows) -> None:
        self._server = server
        self._rows = rows
        self._thread = threading.get_ident()
        self._limit = LIMIT + turn_interval()
        self._turned = last_turn(server)
        self._looked = monotonic()
        #: While the loop is blocked: since when, and when a row is due.
        self._since: float | None = None
        self._repeats = Repeats(0.0)

    def look(self) -> None:
        """Write what is due."""
        before, looked = self._turned, self._looked
        # All three at once: C code may hold the interpreter's lock after any of these lines.
        turned, now, clock = last_turn(self._server), monotonic(), time()
        self._turned, self._looked = turned, now
        if turned is None or before is None:
            return
        # No thread ran, not even this one: C code held the interpreter's lock, or the process was
        # stopped. The loop's stack says nothing of it.
        stalled = now - looked > INTERVAL + self._limit
        blocked = clock - turned > self._limit
        if self._since is not None and turned != self._since:
            self._rows.write(LOOP_BLOCKED, {"since": self._since, "until": turned})
            self._since = None
        elif stalled and not blocked:
            self._rows.write(LOOP_BLOCKED, {"since": before, "until": turned})
        if blocked:
            self._is_blocked(turned, now, look_at_it=not stalled)

    def _is_blocked(self, since: float, now: float, look_at_it: bool) -> None:
        if self._since is None:
            self._since, self._repeats = since, Repeats(now)
        stack: stacks.Stack = ()
        state = None
        if look_at_it:
            frame = stacks.current_frames().get(self._thread)
            stack = stacks.stack_of(stacks.frames_of_thread(frame, None))
            state = stacks.Threads().state(self._thread)
        if self._repeats.is_due(now, stack, state):
            self._rows.write(LOOP_BLOCKED, {"since": since, "thread_state": state}, stack)
