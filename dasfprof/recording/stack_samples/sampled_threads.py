"""The sampled threads: those of a worker's tasks, event loops, and a client's main thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
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
#: Maximum number of functions whose mode is stored.
_MOST_FUNCTIONS = 4096
#: Threshold (seconds): an event loop is blocked if it has not turned for so long, beyond the
#: interval at which Dask records its turns.
BLOCKED = 0.05

#: Takes a row.
Write = Callable[[tuple[Any, ...]], None]


class SamplingMode(IntEnum):
    """How often a thread is sampled while it runs the same task."""

    NEVER = 0
    RARELY = 1
    ALWAYS = 2


class Subject(Protocol):
    """Something whose stacks are sampled."""

    #: Reads its stacks.
    stacks: StackReader

    def threads(self) -> dict[int, Any]:
        """Return the threads to sample now, by identity, each with an object for its activity.

        A sample is discarded if the object differs after the sample.
        """

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return how often a thread is sampled."""

    def read(self, threads: Iterable[int], frames: Mapping[int, FrameType]) -> dict[int, Seen]:
        """Return the stacks of threads, given the innermost frames of all threads."""
        stacks = {thread: self.stacks.read(frames.get(thread)) for thread in threads}
        return {thread: seen for thread, seen in stacks.items() if seen is not None}

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample."""


#: All objects that sample tasks of this process.
_of_tasks: weakref.WeakSet[TaskThreads] = weakref.WeakSet()


class TaskThreads(Subject):
    """The threads of a worker's tasks. Created on the worker's event loop.

    Threads of slow functions are always sampled, from the start of a run on. Threads of other
    functions are sampled rarely. Brief runs are never sampled, because a sample would take longer.

    If a task waits for a pool of threads, the stack of a pool's thread follows its own. If several
    functions run at a time, it is unknown which of them a pool's thread works for.

    Parameters
    ----------
    worker
        The worker, which is only read.
    began
        Start (Unix seconds) of runs in progress by key. The event loop adds and removes them.
    hidden
        Keys of tasks that are not sampled.
    stacks
        The file's stacks.
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
        #: By function: its mode, and the number of samples in a row that found younger runs.
        self._modes: dict[Any, tuple[SamplingMode, int]] = {}
        self._turn = 0
        self.stacks = StackReader(stacks, first_functions())
        _of_tasks.add(self)

    def threads(self) -> dict[int, Any]:
        """Return the threads that run a task, each with its key."""
        threads = self._running.copy()
        if not self._hidden:
            return threads
        return {thread: key for thread, key in threads.items() if key not in self._hidden}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return the mode of a run or of its function, whichever is more frequent."""
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

    def read(self, threads: Iterable[int], frames: Mapping[int, FrameType]) -> dict[int, Seen]:
        """Return the stacks of tasks, with those of pools' threads for which they wait."""
        stacks = super().read(threads, frames)
        waiting = [thread for thread in stacks if waits_for_pool(frames[thread])]
        if not waiting or len(_of_tasks) > 1:
            return stacks
        running = self._running.copy()
        functions = {getattr(self._tasks.get(key), "prefix", None) for key in running.values()}
        others = [frame for thread, frame in frames.items() if thread not in running]
        working = [frame for frame in others if works_in_pool(frame)]
        if len(functions) > 1 or not working:
            return stacks
        self._turn += 1  # Samples of one task represent all threads of its pool.
        for number, thread in enumerate(waiting, self._turn):
            seen = self.stacks.read(frames[thread], working[number % len(working)])
            stacks[thread] = seen or stacks[thread]
        return stacks

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample of a task."""
        self._write(
            (now, state.thread, seen[0], state.activity, interval, state.cpu, state.run_queue)
        )


class EventLoop(Subject):
    """The thread of an event loop while the loop is blocked. Created on that loop.

    Parameters
    ----------
    server
        The worker or scheduler of the loop, which is only read.
    stacks
        The file's stacks.
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
        """Return the loop's thread if the loop is blocked, with the time of its last turn."""
        turned = last_turn(self._server)
        if turned is None:
            return {}
        if self._since is not None and turned != self._since:
            ended = (time(), self._since, turned, UNKNOWN_STACK, None, 0.0, None, None)
            self._since = None
            self._write(ended)
        return {self._thread: turned} if time() - turned > self._limit else {}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return the mode of a blocked loop."""
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

    It is always sampled while it waits or has nothing on the cluster, and rarely at other times. A
    rare sample represents the time since the last one that other samples do not represent.

    Parameters
    ----------
    client
        The client, which is only read.
    stacks
        The file's stacks.
    write
        Takes rows of `CLIENT_SAMPLE`.
    """

    def __init__(self, client: Any, stacks: StackRows, write: Write) -> None:
        self._client = client
        self._write = write
        self._mode = SamplingMode.NEVER
        self._sampled = monotonic()
        #: Seconds that no sample represents yet.
        self._owed = 0.0
        self.stacks = StackReader(stacks, describe=phase)

    def threads(self) -> dict[int, Any]:
        """Return the main thread."""
        main = threading.main_thread()
        return {main.ident: main} if main.ident is not None and main.is_alive() else {}

    def mode(self, thread: int, doing: Any, os_threads: OsThreads) -> SamplingMode:
        """Return ALWAYS if the program waits or has nothing on the cluster, and else RARELY."""
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
                cpu = run_queue = None  # They cover the whole time since the last rare sample.
            interval = owed
        self._owed -= interval
        self._write((now, seen[1], seen[0], state.activity, interval, cpu, run_queue))


#: Maximum number of frames of a stack. Deeper stacks are unknown.
_DEEPEST = range(5000)
#: Maximum number of stacks that are cached.
_MOST = 4096

#: Files in which threads wait for pools of threads, and the innermost files of such waits.
_POOLS = ("/concurrent/futures/_base.py", "/multiprocessing/pool.py", "/joblib/parallel.py")
_INNERMOST = ("/threading.py", "/joblib/parallel.py")
#: Files of pools, and the functions in which their threads wait for work and then call it.
_OF_POOLS = ("/concurrent/futures/thread.py", "/multiprocessing/pool.py")
_FIRST = ("_worker", "worker")
#: Maximum number of frames of a wait for a pool.
_WAIT_FRAMES = 6
_HELPED = "/task_runs/run_storage.py"

#: The first instruction of a call, from Python 3.11 on.
_BEGIN = opmap.get("RESUME")

#: The number of a stack, and the result of `StackReader.describe`.
Seen = tuple[int, str | None]


def waits_for_pool(frame: FrameType | None) -> bool:
    """Return whether a thread waits for a pool of threads, given its innermost frame."""
    if frame is None or not frame.f_code.co_filename.endswith(_INNERMOST):
        return False
    for _ in range(_WAIT_FRAMES):
        if frame is None or frame.f_code.co_filename.endswith(_POOLS):
            return frame is not None
        frame = frame.f_back
    return False


def works_in_pool(innermost: FrameType) -> bool:
    """Return whether a pool's thread runs other code than that of Dask and this package."""
    frame: FrameType | None = innermost
    while frame is not None and not _is_first_of_pool(frame):
        file = frame.f_code.co_filename
        # The threads in which Zarr decompresses call a function of this package.
        if "/distributed/" in file or ("/dasfprof/" in file and not file.endswith(_HELPED)):
            return False
        frame = frame.f_back
    return frame is not None and frame is not innermost


def _is_first_of_pool(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name in _FIRST and code.co_filename.endswith(_OF_POOLS)


class StackReader:
    """Returns the numbers of stacks in a file.

    Parameters
    ----------
    rows
        The file's stacks.
    begins
        Functions whose innermost call is where stacks start, if there are any. Threads that run
        none of them are left out.
    describe
        Returns a word for a stack, given its frames with the outermost first.
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
        #: By identities of code and instructions, the innermost frame first. The code is stored, so
        #: that no other code gets its identity.
        self._known: dict[tuple[int, ...], tuple[Seen, list[CodeType]]] = {}

    def read(self, frame: FrameType | None, helper: FrameType | None = None) -> Seen | None:
        """Return number and word of a stack, given its innermost frame, or None if left out.

        If there is a helper, the stack of this thread of a pool follows.
        """
        position = self._position(frame)
        if position is None:
            return None
        if not position:
            return UNKNOWN_STACK, None
        position = _position_in_pool(helper) + position
        known = self._known.get(position)
        return known[0] if known is not None else self._read_new(frame, helper, position)

    def _position(self, frame: FrameType | None) -> tuple[int, ...] | None:
        """Return identities of code and instructions, or nothing if there are no or many frames."""
        begins = self._begin_ids
        position: list[int] = []
        for _ in _DEEPEST:
            if frame is None:
                return None if begins else tuple(position)
            code = id(frame.f_code)
            if code in begins:
                return tuple(position)
            position += code, frame.f_lasti
            frame = frame.f_back
        return ()

    def _read_new(
        self, innermost: FrameType | None, helper: FrameType | None, position: tuple[int, ...]
    ) -> Seen:
        in_pool = _position_in_pool(helper)
        frames: list[FrameType] = []
        for first, length in ((helper, len(in_pool)), (innermost, len(position) - len(in_pool))):
            frame = first
            for _ in range(length // 2):
                if frame is not None:
                    frames.append(frame)
                    frame = frame.f_back
        codes = [each.f_code for each in frames]
        if len(frames) > 1 and not _has_run(codes[0], position[1]):
            del frames[0]
        frames.reverse()
        word = self._describe(frames) if self._describe is not None else None
        seen = self._rows.number(stack_of(frames)), word
        # The threads may have continued meanwhile.
        now = _position_in_pool(helper) + (self._position(innermost) or ())
        if now == position and seen[0] != UNKNOWN_STACK:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[position] = seen, codes
        return seen


def _position_in_pool(frame: FrameType | None) -> tuple[int, ...]:
    """Return identities of code and instructions of a pool's thread, the innermost first."""
    position: list[int] = []
    while frame is not None:
        position += id(frame.f_code), frame.f_lasti
        if _is_first_of_pool(frame):
            break
        frame = frame.f_back
    return tuple(position)


def _has_run(code: CodeType, instruction: int) -> bool:
    """Return whether a call has run more than its first instruction.

    A thread gives the GIL to the sampler between some instructions, for example at the first one of
    a call. The time before it belongs to the caller.
    """
    if _BEGIN is None:
        return instruction >= 0
    return code.co_code[instruction : instruction + 2] != bytes((_BEGIN, 0))
