"""The threads that are sampled: those of a worker's tasks, event loops, a client's main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from math import inf
from opcode import opmap
from time import monotonic, time
from types import CodeType, FrameType
from typing import Any, Protocol

from dasfprof.recording.dask_internals.client_calls import has_pending, phase
from dasfprof.recording.dask_internals.inspection.stacks import stack_of
from dasfprof.recording.dask_internals.task_functions import first_functions, running_tasks
from dasfprof.recording.dask_internals.undocumented import last_turn, turn_interval
from dasfprof.recording.rows import UNKNOWN_STACK, StackRows
from dasfprof.recording.stack_samples.os_threads import RESOLUTION, OsThreads, ThreadState

#: Thresholds (seconds): task runs of at least the first are slow, those under the second are too
#: brief to be sampled.
SLOW, BRIEF = 0.03, 0.003
#: Number of samples in a row that find younger runs of a function, after which it is less slow.
_YOUNG = 20
#: Maximum number of functions that are known.
_MOST_FUNCTIONS = 4096
#: Threshold (seconds): an event loop is blocked if it has not turned for so long, beyond the
#: interval at which Dask records its turns.
BLOCKED = 0.05

#: Takes a row.
Write = Callable[[tuple[Any, ...]], None]


class SamplingMode(IntEnum):
    """How often a thread is sampled, as long as it does what it does."""

    NEVER = 0
    RARELY = 1
    ALWAYS = 2


class Subject(Protocol):
    """Something whose stacks are sampled."""

    #: Reads its stacks.
    stacks: StackReader

    def threads(self) -> dict[int, Any]:
        """Return the threads to sample now, by identity, each with an object for what it does.

        A thread is left out if this is another object after the sample than it was before.
        """
        ...

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return how often a thread is sampled."""
        ...

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample."""
        ...


class TaskThreads(Subject):
    """The threads of a worker's tasks. Made on the worker's loop.

    Those of slow functions are always sampled, from the start of their runs on; those of others
    rarely; those of brief runs never, as a sample would take longer.

    Parameters
    ----------
    worker
        The worker; only read.
    began
        By key: when runs in progress started, Unix seconds. The event loop adds and removes them.
    hidden
        Keys of tasks that are not sampled.
    stacks
        Of the file.
    write
        Takes rows of `TASK_SAMPLE`.
    """

    def __init__(
        self,
        worker: Any,
        began: Mapping[Any, float],
        hidden: Collection[Any],
        stacks: StackRows,
        write: Write,
    ) -> None:
        self._running = running_tasks(worker)
        self._tasks = worker.state.tasks
        self._began, self._hidden = began, hidden
        self._write = write
        #: By function: its mode, and how many samples in a row have found younger runs.
        self._modes: dict[Any, tuple[SamplingMode, int]] = {}
        self.stacks = StackReader(stacks, first_functions())

    def threads(self) -> dict[int, Any]:
        """Return those that run a task, each with its key."""
        threads = self._running.copy()
        if not self._hidden:
            return threads
        return {thread: key for thread, key in threads.items() if key not in self._hidden}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return that of the run of a key: its own or its function's, whichever is more often."""
        age, task = time() - self._began.get(doing, -inf), self._tasks.get(doing)
        mode = SamplingMode((age >= BRIEF) + (age >= SLOW))
        function = None if task is None else task.prefix
        known, young = self._modes.get(function, (mode, 0))
        if mode < known and young < _YOUNG:
            young += 1
        else:
            known, young = mode, 0
        if len(self._modes) >= _MOST_FUNCTIONS:
            self._modes.clear()
        self._modes[function] = known, young
        return known

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample of a task."""
        self._write(
            (now, state.thread, seen[0], state.activity, interval, state.cpu, state.run_queue)
        )


class EventLoop(Subject):
    """The thread of an event loop, while the loop is blocked. Made on that loop.

    Parameters
    ----------
    server
        The worker or scheduler of the loop; only read.
    stacks
        Of the file.
    write
        Takes rows of `LOOP_SAMPLE`.
    """

    def __init__(self, server: Any, stacks: StackRows, write: Write) -> None:
        self._server = server
        self._write = write
        self._thread = threading.get_ident()
        self._limit = BLOCKED + turn_interval()
        #: When the loop last turned, while it is blocked.
        self._since: float | None = None
        self.stacks = StackReader(stacks)

    def threads(self) -> dict[int, Any]:
        """Return the loop's if it is blocked, with the time of its last turn."""
        turned = last_turn(self._server)
        if turned is None:
            return {}
        if self._since is not None and turned != self._since:
            ended = (time(), self._since, turned, UNKNOWN_STACK, None, 0.0, None, None)
            self._since = None
            self._write(ended)
        return {self._thread: turned} if time() - turned > self._limit else {}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return that of a loop that is blocked."""
        return SamplingMode.ALWAYS

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample of the blocked loop."""
        self._since = doing
        times = state.activity, interval, state.cpu, state.run_queue
        self._write((now, doing, None, seen[0], *times))


class ClientThread(Subject):
    """The main thread of a client's process.

    It is always sampled while it waits, or while the cluster has nothing to do for it, and rarely
    at other times. A rare sample stands for the time that the others leave, so that all together
    stand for the time that has passed.

    Parameters
    ----------
    client
        The client; only read.
    stacks
        Of the file.
    write
        Takes rows of `CLIENT_SAMPLE`.
    """

    def __init__(self, client: Any, stacks: StackRows, write: Write) -> None:
        self._client = client
        self._write = write
        self._mode = SamplingMode.NEVER
        self._sampled = monotonic()
        #: The seconds for which no sample stands yet.
        self._owed = 0.0
        self.stacks = StackReader(stacks, describe=phase)

    def threads(self) -> dict[int, Any]:
        """Return the main thread."""
        main = threading.main_thread()
        return {main.ident: main} if main.ident is not None and main.is_alive() else {}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return that of a program that waits, or that keeps the cluster waiting."""
        is_rare = has_pending(self._client) and os_threads.activity(thread) != "waiting"
        self._mode = SamplingMode.RARELY if is_rare else SamplingMode.ALWAYS
        return self._mode

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample of the program."""
        before, self._sampled = self._sampled, monotonic()
        self._owed += self._sampled - before
        cpu, run_queue = state.cpu, state.run_queue
        if self._mode is SamplingMode.RARELY:
            owed = max(round(self._owed * RESOLUTION) / RESOLUTION, 0.0)
            if owed < interval:
                cpu = run_queue = None  # these are of all the time since the last rare sample
            interval = owed
        self._owed -= interval
        self._write((now, seen[1], seen[0], state.activity, interval, cpu, run_queue))


#: The most frames that are walked through; a deeper stack is unknown.
_DEEPEST = range(5000)
#: The most stacks that are remembered by their places in code.
_MOST = 4096

#: The instruction at the begin of calls, from Python 3.11 on.
_BEGIN = opmap.get("RESUME")

#: The number of a stack, and what `StackReader.describe` says of it.
Seen = tuple[int, str | None]


class StackReader:
    """Finds the numbers of stacks in a file.

    Parameters
    ----------
    rows
        The file's stacks.
    begins
        The functions in whose innermost call stacks begin, if there are any: a thread that is in
        none of them is left out.
    describe
        Says a word of a stack, given its frames from the outermost on.
    """

    def __init__(
        self,
        rows: StackRows,
        begins: tuple[CodeType, ...] = (),
        describe: Callable[[list[FrameType]], str] | None = None,
    ) -> None:
        self._rows = rows
        self._begins = begins
        self._begin_ids = frozenset(map(id, begins))
        self._describe = describe
        #: By identity of code and place in it, from the innermost frame on. The code is kept, or
        #: another might get its identity.
        self._known: dict[tuple[int, ...], tuple[Seen, list[CodeType]]] = {}

    def see(self, frame: FrameType | None) -> Seen | None:
        """Return what is known of a stack, given its innermost frame; None if it is left out."""
        place = self._place(frame)
        if place is None:
            return None
        if not place:
            return UNKNOWN_STACK, None
        known = self._known.get(place)
        return known[0] if known is not None else self._see_new(frame, place)

    def _place(self, frame: FrameType | None) -> tuple[int, ...] | None:
        """Return codes and places in them; empty for a stack that is too deep or has no frame."""
        begins = self._begin_ids
        place: list[int] = []
        for _ in _DEEPEST:
            if frame is None:
                return None if begins else tuple(place)
            code = id(frame.f_code)
            if code in begins:
                return tuple(place)
            place += code, frame.f_lasti
            frame = frame.f_back
        return ()

    def _see_new(self, frame: FrameType | None, place: tuple[int, ...]) -> Seen:
        innermost, frames = frame, []
        for _ in range(len(place) // 2):
            if frame is not None:
                frames.append(frame)
                frame = frame.f_back
        codes = [each.f_code for each in frames]
        if len(frames) > 1 and not _has_run(codes[0], place[1]):
            del frames[0]
        frames.reverse()
        word = self._describe(frames) if self._describe is not None else None
        seen = self._rows.number(stack_of(frames)), word
        # Meanwhile the thread may have run on.
        if self._place(innermost) == place and seen[0] != UNKNOWN_STACK:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[place] = seen, codes
        return seen


def _has_run(code: CodeType, place: int) -> bool:
    """Return whether a call has run anything, given the place of its instruction.

    A thread gives the GIL to the sampler between some instructions, of which the
    first of a call is one. What it did until then is the caller's.
    """
    if _BEGIN is None:
        return place >= 0
    return code.co_code[place : place + 2] != bytes((_BEGIN, 0))
