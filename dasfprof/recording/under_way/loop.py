"""What an event loop that does not turn, and a client's main thread, are doing."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Any

from dasfprof.recording.dask_internals.inspection import stacks
from dasfprof.recording.dask_internals.undocumented import last_turn, turn_interval
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.probes.process import resident_memory
from dasfprof.recording.rows import FileRows
from dasfprof.schema.under_way import CLIENT_UNDER_WAY, LOOP_BLOCKED
from dasfprof.system import thread_cpu

#: Seconds between two looks.
INTERVAL = 1.0

#: Seconds that the end of recording waits for the current look.
_LAST_LOOK = 2.0


class Pulse:
    """Calls functions again and again in a daemon thread of its own, from `start` until `stop`.

    The thread does nothing else: what a disk or a driver blocks must not keep it from looking.

    Parameters
    ----------
    name
        Of the thread.
    looks
        The functions. If one raises, the others are called all the same.
    guard
        Handles their errors.
    interval
        Seconds between two calls.
    """

    def __init__(
        self,
        name: str,
        looks: Sequence[Callable[[], object]],
        guard: HookGuard,
        interval: float = INTERVAL,
    ) -> None:
        self._looks = looks
        self._interval = interval
        self._guard = guard
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dasfprof-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. A forked child has no such thread."""
        if os.getpid() == self._pid:
            self._stopping.set()
            if self._thread is not threading.current_thread():
                self._thread.join(_LAST_LOOK)

    def _run(self) -> None:
        due = monotonic() + self._interval
        while not self._stopping.wait(max(0.0, due - monotonic())):
            for look in self._looks:
                try:
                    look()
                except Exception:
                    self._guard.caught("a look at what is under way")
            due = max(due + self._interval, monotonic())


# --- When a row is due, and whether a thread sleeps -----------------------------------------------

#: Seconds until the first repetition, and the most until the next.
FIRST, LONGEST = 1.0, 60.0

#: Seconds by which a look may come early.
_TOLERANCE = 0.2


class Repeats:
    """Decides when a row is due: at the first look, 1, 2, 4 ... 60 s later, and after changes.

    Parameters
    ----------
    now
        Monotonic seconds of the first look.
    """

    __slots__ = ("_due", "_facts", "_gap", "_seen", "_state", "_steady")

    def __init__(self, now: float) -> None:
        self._gap = FIRST / 2
        self._due = now
        self._facts: Any = None
        #: The thread's state as it was last seen, as it was at two looks on end, and as written.
        self._seen: str | None = None
        self._steady: str | None = None
        self._state: str | None = None

    def is_due(self, now: float, facts: Any, state: str | None) -> bool:
        """Return whether a row is due, which is then taken to be written.

        Parameters
        ----------
        now
            Monotonic seconds.
        facts
            What makes a row due when it is another than the last one that was written.
        state
            The thread's. A change counts when it was seen at two looks: a thread that sleeps most
            of the time is seen running now and then, and the reverse.
        """
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


#: The share of a core from which a thread counts as running, and the seconds between two looks from
#: which that tells: for less than that any thread may have had to wait.
_BUSY, _TELLS = 0.05, 0.5


class Busy:
    """Distinguishes a thread that waits for the interpreter's lock from a sleeping one.

    To the kernel both sleep, and while another thread of the process looks at it, a thread that
    runs Python code has to wait. So one that used a core since the last look counts as running,
    and after one look alone nothing says that a thread sleeps.
    """

    __slots__ = ("_cpu", "_looked", "_state")

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._looked: float | None = None
        self._state: str | None = None

    def state(self, state: str | None, cpu: float | None, now: float) -> str | None:
        """Return the state of a thread; None: unknown.

        Parameters
        ----------
        state
            By the kernel.
        cpu
            CPU seconds that the thread has used until now.
        now
            Monotonic seconds. So soon after the last look that nothing can be told, the answer is
            that of the last look.
        """
        if self._looked is not None and now - self._looked < _TELLS:
            return self._state
        if self._looked is None or self._cpu is None or cpu is None:
            self._state = None if state == "sleeping" else state
        else:
            self._state = "running" if (cpu - self._cpu >= _BUSY * (now - self._looked)) else state
        self._cpu, self._looked = cpu, now
        return self._state


# --- Event loops, and the thread of the client ----------------------------------------------------

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

    def __init__(self, server: Any, rows: FileRows) -> None:
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


#: Bytes by which the memory of a client's process has to change for a row of its own.
_CHANGE = 1 << 24


class ClientUnderWay:
    """Writes rows of the main thread. Called in another thread, once a second.

    Parameters
    ----------
    client
        The client's id.
    rows
        Where they go.
    """

    def __init__(self, client: str, rows: FileRows) -> None:
        self._client = client
        self._rows = rows
        self._busy = Busy()
        self._repeats = Repeats(monotonic())
        self._stack: stacks.Stack = ()
        self._since = time()
        self._memory: int | None = None

    def look(self) -> None:
        """Write what is due."""
        thread = threading.main_thread().ident
        frame = None if thread is None else stacks.current_frames().get(thread)
        if thread is None or frame is None:  # it has ended, and others keep the process alive
            return
        frames = stacks.frames_of_thread(frame, None)
        now, stack = monotonic(), stacks.stack_of(frames)
        asleep, cpu = stacks.Threads().state(thread), thread_cpu(thread)
        state = self._busy.state(asleep, cpu, now)
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
