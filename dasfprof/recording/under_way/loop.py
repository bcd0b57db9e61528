"""`Pulse`, a thread that takes snapshots, and `ClientUnderWay`, which writes a client's snapshots.

The snapshots of a client show its main thread. `Repeats` decides which snapshots are written.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from time import monotonic, time
from typing import Any

from dasfprof.recording.dask_internals.inspection import stacks
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.probes.process import resident_memory
from dasfprof.recording.rows import FileRows
from dasfprof.schema.under_way import CLIENT_UNDER_WAY
from dasfprof.system import thread_cpu

#: Seconds between two snapshots.
INTERVAL = 1.0

#: Maximum seconds for which the end of recording waits for the current snapshot.
_LAST_SNAPSHOT = 2.0


class Pulse:
    """A daemon thread that calls a function at intervals until `stop` is called.

    Parameters
    ----------
    guard
        Handles the errors of the function.
    interval
        Seconds between two calls.
    """

    def __init__(
        self, name: str, call: Callable[[], object], guard: HookGuard, interval: float = INTERVAL
    ) -> None:
        self._call = call
        self._interval = interval
        self._guard = guard
        self._pid = os.getpid()
        # This thread does no other work than snapshots, because a blocked disk or driver could then
        # delay them.
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dasfprof-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. In a forked child, do nothing, because the child has no such thread."""
        if os.getpid() == self._pid:
            self._stopping.set()
            if self._thread is not threading.current_thread():
                self._thread.join(_LAST_SNAPSHOT)

    def _run(self) -> None:
        due = monotonic() + self._interval
        while not self._stopping.wait(max(0.0, due - monotonic())):
            with self._guard.catching("a snapshot of unfinished work"):
                self._call()
            due = max(due + self._interval, monotonic())


#: Seconds until a row is repeated for the first time, and maximum seconds between two repetitions.
FIRST, LONGEST = 1.0, 60.0

#: Seconds by which a snapshot may be earlier than the time when a row is due.
_TOLERANCE = 0.2


class Repeats:
    """Decides whether a snapshot is written as a row.

    A row is due at the first snapshot and after each change. Without a change, a row is repeated
    after 1 s, and then after pauses that double each time, up to 60 s.

    Parameters
    ----------
    now
        Monotonic seconds of the first snapshot.
    """

    def __init__(self, now: float) -> None:
        self._gap = FIRST / 2
        self._due = now
        self._facts: Any = None
        #: The thread's state in the last snapshot (`_seen`), in the last two successive snapshots
        #: that agree (`_steady`), and in the last row (`_state`).
        self._seen: str | None = None
        self._steady: str | None = None
        self._state: str | None = None

    def is_due(self, now: float, facts: Any, state: str | None) -> bool:
        """Return whether a row is due. The caller must then write it.

        Parameters
        ----------
        now
            Monotonic seconds.
        facts
            The contents of the snapshot. A row is due if they differ from the last row's contents.
        state
            The thread's state. A change counts only if two snapshots in a row show the new state.
        """
        # A thread that sleeps most of the time may be running in a single snapshot, and vice versa.
        if state == self._seen:
            self._steady = state
        self._seen = state
        if now >= self._due - _TOLERANCE:
            self._gap = min(LONGEST, 2 * self._gap)
            self._due = now + self._gap
        elif facts == self._facts and self._steady == self._state:
            return False
        self._facts, self._state = facts, state
        return True


#: Threshold (fraction of a core) from which a thread counts as running, and minimum seconds over
#: which the fraction is computed. In a shorter time, even a busy thread may only have waited.
_BUSY, _SHORTEST = 0.05, 0.5


class Busy:
    """Distinguishes a thread that waits for the GIL from a thread that sleeps.

    A single snapshot does not show whether a thread sleeps.
    """

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._sampled: float | None = None
        self._state: str | None = None

    def state(self, state: str | None, cpu: float | None, now: float) -> str | None:
        """Return the state of a thread, or None if unknown.

        Parameters
        ----------
        state
            The state according to the kernel.
        cpu
            CPU seconds that the thread has used until now, or None if unknown.
        now
            Monotonic seconds. Within `_SHORTEST` seconds, the last result is returned again.
        """
        if self._sampled is not None and now - self._sampled < _SHORTEST:
            return self._state
        if self._sampled is None or self._cpu is None or cpu is None:
            self._state = None if state == "sleeping" else state
        else:
            # The kernel reports a thread that waits for the GIL as sleeping. The thread that takes
            # the snapshot holds the GIL, so any thread that runs Python code has to wait. Therefore
            # a thread counts as running if it used a core since the last snapshot.
            self._state = "running" if cpu - self._cpu >= _BUSY * (now - self._sampled) else state
        self._cpu, self._sampled = cpu, now
        return self._state


#: Threshold (bytes) from which a change in the memory of a client's process makes a row due.
_CHANGE = 1 << 24


class ClientUnderWay:
    """Writes rows about a client's main thread. Called in another thread, once per second.

    Parameters
    ----------
    client
        The client's id.
    rows
        Writes rows into the trace file.
    """

    def __init__(self, client: str, rows: FileRows) -> None:
        self._client = client
        self._rows = rows
        self._busy = Busy()
        self._repeats = Repeats(monotonic())
        self._stack: stacks.Stack = ()
        self._since = time()
        self._memory: int | None = None

    def sample(self) -> None:
        """Take a snapshot of the main thread, and write it as a row if a row is due."""
        thread = threading.main_thread().ident
        frame = None if thread is None else stacks.current_frames().get(thread)
        # The main thread may have ended, while other threads keep the process alive.
        if thread is None or frame is None:
            return
        frames = stacks.frames_of_thread(frame, None)
        now, stack = monotonic(), stacks.stack_of(frames)
        state = self._busy.state(stacks.thread_state(thread), thread_cpu(thread), now)
        if stack != self._stack:
            self._stack, self._since = stack, time()
        wait, memory = stacks.wait_in(frames), resident_memory()
        if memory is not None and abs(memory - (self._memory or 0)) >= _CHANGE:
            self._memory = memory
        if not self._repeats.is_due(now, (stack, wait, self._memory), state):
            return
        kind, name, keys = wait or (None, None, [])
        facts = {
            "client": self._client,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": self._since,
            "thread_state": state,
            "waits_in": kind,
            "waits_for": name,
            "waits_keys": keys,
            "memory": memory,
        }
        self._rows.write(CLIENT_UNDER_WAY, facts, stack)
