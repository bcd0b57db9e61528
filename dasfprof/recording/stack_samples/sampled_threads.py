"""The subjects that are sampled: threads of tasks, blocked event loops, a client's main thread."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from itertools import islice
from math import inf
from opcode import opmap
from time import time
from types import CodeType, FrameType
from typing import Any

from dasfprof.recording.dask_internals.client_calls import phase
from dasfprof.recording.dask_internals.inspection.stacks import outward, stack_of
from dasfprof.recording.dask_internals.task_functions import first_functions, running_tasks
from dasfprof.recording.dask_internals.undocumented import last_turn, turn_interval
from dasfprof.recording.rows import UNKNOWN_STACK, FileRows
from dasfprof.recording.stack_samples.os_threads import ThreadState

#: Thresholds (seconds): a task run of at least `SLOW` is slow, and a task run of less than `BRIEF`
#: is too brief to be sampled.
SLOW, BRIEF = 0.03, 0.003
#: The mode of a function is lowered only after this many samples in a row at which its runs were
#: too young for the mode.
_YOUNG = 20
#: Maximum number of functions whose mode is stored.
_MOST_FUNCTIONS = 4096
#: Threshold (seconds) for the time since an event loop's last iteration, from which the loop counts
#: as blocked. The interval at which Dask records iterations is added.
BLOCKED = 0.05

#: A function that writes a row.
Write = Callable[[tuple[Any, ...]], None]


class SamplingMode(IntEnum):
    """How often a thread is sampled while its activity, such as a task, stays the same."""

    NEVER = 0
    RARELY = 1
    ALWAYS = 2


class Subject(ABC):
    """One or several threads whose stacks are sampled for the same purpose.

    Parameters
    ----------
    write
        A function that writes rows.
    stacks
        Reads the stacks of the threads.
    """

    def __init__(self, write: Write, stacks: StackReader) -> None:
        self.stacks, self._write = stacks, write

    @abstractmethod
    def threads(self) -> dict[int, Any]:
        """Return the threads to sample now, by identity.

        Each value is an object that stands for the thread's current activity, such as a task's key.
        If it changes while the stack is read, the sample is discarded.
        """

    def mode(self, doing: Any) -> SamplingMode:
        """Return how often a thread is to be sampled during the activity `doing`."""
        return SamplingMode.ALWAYS

    def read(self, threads: Iterable[int], frames: Mapping[int, FrameType]) -> dict[int, Seen]:
        """Return the stacks of the given threads.

        Threads that the `StackReader` leaves out are missing. `frames` contains the innermost frame
        of every thread of the process.
        """
        stacks = {thread: self.stacks.read(frames.get(thread)) for thread in threads}
        return {thread: seen for thread, seen in stacks.items() if seen is not None}

    def write(
        self, now: float, interval: float, doing: Any, seen: Seen, state: ThreadState
    ) -> None:
        """Write a sample of one thread.

        Parameters
        ----------
        now
            Time of the sample (Unix seconds).
        interval
            Seconds that the sample represents.
        doing
            The object for the thread's activity, from `threads`.
        state
            The thread's state according to the operating system.
        """
        times = state.activity, interval, state.cpu, state.run_queue
        self._write((now, *self._about(doing, seen, state.thread), seen[0], *times))

    @abstractmethod
    def _about(self, doing: Any, seen: Seen, thread: int) -> tuple[Any, ...]:
        """Return the columns of a sample between its time and its stack."""


#: The `TaskThreads` of all workers in this process.
_of_tasks: weakref.WeakSet[TaskThreads] = weakref.WeakSet()


class TaskThreads(Subject):
    """The threads that run a worker's tasks. Must be created on the worker's event loop.

    Task runs of slow functions are included in every sample. Task runs of other functions are
    included in rare samples only, and brief task runs are never sampled.

    Parameters
    ----------
    began
        Start time (Unix seconds) of each task run in progress, by key. The event loop adds and
        removes entries.
    hidden
        Keys of tasks that are not sampled.
    stacks
        Writes stacks into the trace file.
    write
        A function that writes rows of `TASK_SAMPLE`.
    """

    def __init__(
        self,
        worker: Any,
        began: Mapping[Any, float],
        hidden: Collection[Any],
        stacks: FileRows,
        write: Write,
    ) -> None:
        super().__init__(write, StackReader(stacks, first_functions()))
        self._running = running_tasks(worker)
        self._tasks = worker.state.tasks
        self._began, self._hidden = began, hidden
        #: For each function: its sampling mode, and the number of samples in a row at which its
        #: runs were too young for this mode.
        self._modes: dict[Any, tuple[SamplingMode, int]] = {}
        self._turn = 0
        _of_tasks.add(self)

    def threads(self) -> dict[int, Any]:
        """Return the threads that run a task, each with the key of the task."""
        threads = self._running.copy()
        if not self._hidden:
            return threads
        return {thread: key for thread, key in threads.items() if key not in self._hidden}

    def mode(self, doing: Any) -> SamplingMode:
        """Return how often to sample this task run and others of the same function."""
        age, task = time() - self._began.get(doing, -inf), self._tasks.get(doing)
        mode = SamplingMode((age >= BRIEF) + (age >= SLOW))
        function = None if task is None else task.prefix
        known, young = self._modes.get(function, (mode, 0))
        # The older a task run is, the more often it is sampled. The mode of its function rises
        # immediately, and falls only after several samples of younger task runs.
        if mode < known and young < _YOUNG:
            young += 1
        else:
            known, young = mode, 0
        if len(self._modes) >= _MOST_FUNCTIONS:
            self._modes.clear()
        self._modes[function] = known, young
        return known

    def read(self, threads: Iterable[int], frames: Mapping[int, FrameType]) -> dict[int, Seen]:
        """Return the stacks of tasks.

        If a task waits for a pool of threads, the stack of one of these threads is appended to the
        task's stack.
        """
        stacks = super().read(threads, frames)
        waiting = [thread for thread in stacks if waits_for_pool(frames[thread])]
        if not waiting or len(_of_tasks) > 1:
            return stacks
        running = self._running.copy()
        functions = {getattr(self._tasks.get(key), "prefix", None) for key in running.values()}
        others = [frame for thread, frame in frames.items() if thread not in running]
        working = [frame for frame in others if works_in_pool(frame)]
        # With several functions, it is unknown for which of them a pool's thread works.
        if len(functions) > 1 or not working:
            return stacks
        # Change the chosen thread from sample to sample, so that all threads of a pool are seen.
        self._turn += 1
        for number, thread in enumerate(waiting, self._turn):
            seen = self.stacks.read(frames[thread], working[number % len(working)])
            stacks[thread] = seen or stacks[thread]
        return stacks

    def _about(self, doing: Any, seen: Seen, thread: int) -> tuple[Any, ...]:
        return (thread,)


class EventLoop(Subject):
    """Samples the thread of an event loop while the loop is blocked.

    Create an instance in the thread of the loop.

    Parameters
    ----------
    server
        The worker or scheduler that runs on the loop. Its state is not changed.
    stacks
        Writes stacks into the trace file.
    write
        A function that writes rows of `LOOP_SAMPLE`.
    """

    def __init__(self, server: Any, stacks: FileRows, write: Write) -> None:
        super().__init__(write, StackReader(stacks))
        self._server = server
        self._thread = threading.get_ident()
        self._limit = BLOCKED + turn_interval()
        #: Time of the last iteration of the loop, if the loop was blocked at the last sample.
        self._since: float | None = None

    def threads(self) -> dict[int, Any]:
        """Return the loop's thread, with the time of its last iteration, if it is blocked."""
        turned = last_turn(self._server)
        if turned is None:
            return {}
        if self._since is not None and turned != self._since:
            ended = (time(), self._since, turned, UNKNOWN_STACK, None, 0.0, None, None)
            self._since = None
            self._write(ended)
        return {self._thread: turned} if time() - turned > self._limit else {}

    def _about(self, doing: Any, seen: Seen, thread: int) -> tuple[Any, ...]:
        self._since = doing
        return doing, None


class ClientThread(Subject):
    """The main thread of a client's process.

    Parameters
    ----------
    stacks
        Writes stacks into the trace file.
    write
        A function that writes rows of `CLIENT_SAMPLE`.
    """

    def __init__(self, stacks: FileRows, write: Write) -> None:
        super().__init__(write, StackReader(stacks, describe=phase))

    def threads(self) -> dict[int, Any]:
        """Return the main thread, or nothing if it has ended."""
        main = threading.main_thread()
        return {main.ident: main} if main.ident is not None and main.is_alive() else {}

    def _about(self, doing: Any, seen: Seen, thread: int) -> tuple[Any, ...]:
        return (seen[1],)


#: Maximum number of frames of a stack. Deeper stacks are unknown.
_DEEPEST = range(5000)
#: Maximum number of stacks that are cached.
_MOST = 4096

#: Files whose functions wait for a pool of threads, and files of the innermost frame of such waits.
_POOLS = ("/concurrent/futures/_base.py", "/multiprocessing/pool.py", "/joblib/parallel.py")
_INNERMOST = ("/threading.py", "/joblib/parallel.py")
#: Files of pools, and the functions in which a pool's thread waits for work and calls it.
_OF_POOLS = ("/concurrent/futures/thread.py", "/multiprocessing/pool.py")
_FIRST = ("_worker", "worker")
#: Maximum number of frames between the innermost frame and the function that waits for the pool.
_WAIT_FRAMES = 6
_HELPED = "/task_runs/run_storage.py"

#: Code of the first instruction of a function since Python 3.11, or None in earlier versions.
_BEGIN = opmap.get("RESUME")

#: The number of a stack, and the result of the function `describe` of `StackReader`, or None.
Seen = tuple[int, str | None]


def waits_for_pool(frame: FrameType | None) -> bool:
    """Return whether a thread waits for a pool of threads, given its innermost frame."""
    if frame is None or not frame.f_code.co_filename.endswith(_INNERMOST):
        return False
    files = (each.f_code.co_filename for each in islice(outward(frame), _WAIT_FRAMES))
    return any(file.endswith(_POOLS) for file in files)


def works_in_pool(innermost: FrameType) -> bool:
    """Return whether a thread belongs to a pool and runs code that Dask and dasfprof did not start.

    `innermost` is the innermost frame of the thread.
    """
    for frame in outward(innermost):
        if _is_first_of_pool(frame):
            return frame is not innermost
        file = frame.f_code.co_filename
        # The threads in which Zarr decompresses call a function of this package.
        if "/distributed/" in file or ("/dasfprof/" in file and not file.endswith(_HELPED)):
            return False
    return False


def _is_first_of_pool(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name in _FIRST and code.co_filename.endswith(_OF_POOLS)


class StackReader:
    """Reads stacks of threads, and returns the number that identifies each stack in a trace file.

    Parameters
    ----------
    rows
        Writes stacks into the trace file.
    begins
        Functions whose innermost call is the start of a stack. Threads that run none of them are
        left out. If `begins` is empty, stacks are complete.
    describe
        A function that returns a one-word description of a stack. Its argument is the list of the
        stack's frames, outermost first.
    """

    def __init__(
        self,
        rows: FileRows,
        begins: tuple[CodeType, ...] = (),
        describe: Callable[[list[FrameType]], str] | None = None,
    ) -> None:
        self._rows = rows
        self._begins = begins
        self._begin_ids = frozenset(map(id, begins))
        self._describe = describe
        #: Stacks that were read before. A key contains the identity of the code object and the
        #: offset of the instruction of each frame, innermost first. The code objects are stored, so
        #: that no other code object gets the same identity.
        self._known: dict[tuple[int, ...], tuple[Seen, list[CodeType]]] = {}

    def read(self, frame: FrameType | None, helper: FrameType | None = None) -> Seen | None:
        """Return the number and the description of a stack, or None if the thread is left out.

        `frame` is the innermost frame of the thread. If the thread waits for a pool, `helper` is
        the innermost frame of a thread of that pool, whose stack is appended.
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
        """Return the key of a thread's stack in `_known`, or None if the thread is left out.

        `frame` is the innermost frame of the stack. The key is empty if the stack has no frames or
        too many.
        """
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
        in_pool = len(_position_in_pool(helper)) // 2
        frames = list(islice(outward(helper), in_pool))
        frames += islice(outward(innermost), len(position) // 2 - in_pool)
        codes = [each.f_code for each in frames]
        if len(frames) > 1 and not _has_run(codes[0], position[1]):
            del frames[0]
        frames.reverse()
        word = self._describe(frames) if self._describe is not None else None
        seen = self._rows.stack_number(stack_of(frames)), word
        # Cache the stack only if the threads have not continued since `position` was read.
        now = _position_in_pool(helper) + (self._position(innermost) or ())
        if now == position and seen[0] != UNKNOWN_STACK:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[position] = seen, codes
        return seen


def _position_in_pool(frame: FrameType | None) -> tuple[int, ...]:
    """Return the part of a stack's key in `_known` that describes a thread of a pool.

    It has the code's identity and the instruction of each frame, from `frame`, the innermost frame,
    to the first function of the pool. It is empty if `frame` is None.
    """
    position: list[int] = []
    for each in outward(frame):
        position += id(each.f_code), each.f_lasti
        if _is_first_of_pool(each):
            break
    return tuple(position)


def _has_run(code: CodeType, instruction: int) -> bool:
    """Return whether a called function has executed more than its first instruction."""
    if _BEGIN is None:
        return instruction >= 0
    # A thread releases the GIL for the sampler between certain instructions, for example at the
    # first instruction of a called function. The time before that instruction belongs to the
    # caller.
    return code.co_code[instruction : instruction + 2] != bytes((_BEGIN, 0))
