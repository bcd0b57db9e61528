"""`trace_allocations`: records which lines of a worker's tasks allocated what they held.

Python's tracemalloc tells it, where that is asked for. It traces a whole process, without saying
which thread allocated what. So a task run is told of only if no other one ran in its process at
the time.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from dask.utils import key_split

from dasfprof.recording.dask_internals.inspection.stacks import Stack
from dasfprof.recording.dask_internals.task_functions import (
    RUN_TASK,
    Run,
    availability,
    observe,
)
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.logs import of_library
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.schema.profiles import ALLOCATION, TRACED_FUNCTION

# --- Moment: what was live at a moment, by the stacks that allocated it ---------------------------

#: The stacks of a moment that are kept.
MOST_STACKS = 10
#: Bytes that tracemalloc itself may hold at a look: some million blocks, of 0.3 s.
MOST_HELD = 50_000_000

#: What calls the functions of tasks, what calls that, what is no task's at all, and what wraps
#: functions that tasks call.
_SPECIFICATION = re.compile(r"/dask/_task_spec\.py$")
_WORKER = re.compile(r"/distributed/worker\.py$")
_OF_OTHERS = re.compile(r"/(asyncio|tornado|distributed)/")
_OWN = re.compile(r"/dasfprof/recording/")


@dataclass
class Moment:
    """What was live, and allocated since a task run began."""

    size: int = 0
    #: Bytes and blocks of the stacks with most.
    stacks: list[tuple[Stack, int, int]] = field(default_factory=list)


def look() -> Moment | None:
    """Return this moment; None if there are too many blocks for a look."""
    if tracemalloc.get_tracemalloc_memory() > MOST_HELD:
        return None
    # `take_snapshot` would make objects of each; of equal stacks there is one tuple.
    traces: Any = tracemalloc._get_traces()  # type: ignore[attr-defined]
    sums: dict[int, list[Any]] = {}
    for _, size, frames, calls in traces:
        found = sums.get(id(frames))
        if found is None:
            sums[id(frames)] = [size, 1, frames, calls]
        else:
            found[0] += size
            found[1] += 1
    moment = Moment(sum(found[0] for found in sums.values()))
    for size, blocks, frames, calls in sorted(sums.values(), key=lambda found: -found[0]):
        stack = _stack_of_task(frames, calls)
        if stack:
            moment.stacks.append((stack, size, blocks))
            if len(moment.stacks) == MOST_STACKS:
                break
    return moment


def _stack_of_task(frames: tuple[tuple[str, int], ...], calls: int) -> Stack:
    """Return the frames of a task's function, the outermost first; empty if it is none of a task.

    Where the outer calls are missing, it is taken for a task's if what calls its function is in it,
    or code of the user's: other threads of a worker run libraries.

    Parameters
    ----------
    frames
        File and line of each, the innermost first, as many as tracemalloc keeps.
    calls
        How many there were.
    """
    if _OWN.search(frames[0][0]):
        return ()
    stack: list[tuple[str, str, int]] = []
    is_whole = False
    for file, line in frames:
        if _SPECIFICATION.search(file):
            is_whole = True
        elif _WORKER.search(file):
            # A worker's loop calls libraries too, to log for one.
            return tuple(stack[::-1]) if is_whole else ()
        elif _OF_OTHERS.search(file):
            return ()
        elif not is_whole and not _OWN.search(file):
            stack.append(("", file, line))
    is_cut = calls > len(frames)
    is_tasks = is_cut and (is_whole or not all(of_library(file) for _, file, _ in stack))
    return tuple(stack[::-1]) if is_tasks else ()


# --- Tracing: tracemalloc of this process, and the task runs that go on under it ------------------

#: Frames of each allocation that are kept, from the innermost on. Each makes it dearer.
FRAMES = 12


@dataclass(eq=False)
class TracedRun:
    """A task run that goes on."""

    #: Whether no other one has run in the process since it began.
    alone: bool = True
    #: Bytes from which a moment is worth a look.
    least: float = 0.0
    #: The fullest moment that was seen, and the most bytes that were live at any, until then.
    fullest: Moment = field(default_factory=Moment)
    peak: int = 0


class Tracing:
    """Starts tracemalloc with its first user, and stops it with the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._runs: set[TracedRun] = set()

    def start(self) -> None:
        """Trace from now on.

        Raises
        ------
        RuntimeError
            If the program traces allocations itself.
        """
        with self._lock:
            if not self._users:
                if tracemalloc.is_tracing():
                    raise RuntimeError("the program uses tracemalloc itself")
                tracemalloc.start(FRAMES)
            self._users += 1

    def stop(self) -> None:
        """Undo `start`, at the end of the task runs that go on."""
        with self._lock:
            self._users -= 1
            self._stop_if_unused()

    def begin(self, least: float) -> TracedRun:
        """Note that a task run begins; if it is alone, what was allocated before is forgotten."""
        with self._lock:
            run = TracedRun(alone=not self._runs, least=least)
            for other in self._runs:
                other.alone = False
            self._runs.add(run)
            if run.alone:
                tracemalloc.clear_traces()
            return run

    def end(self, run: TracedRun) -> None:
        """Note that a task run has ended."""
        with self._lock:
            self._runs.discard(run)
            self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        # Before Python 3.12.9 and 3.13.2 a thread that allocates just then may crash.
        if self._users <= 0 and not self._runs:
            tracemalloc.stop()

    def run_alone(self) -> TracedRun | None:
        """Return the task run that goes on, if there is but one and has been since it began."""
        runs = tuple(self._runs)
        return runs[0] if len(runs) == 1 and runs[0].alone else None

    def forget(self) -> None:
        """Trace nothing in a forked child, where no task of the parent's runs."""
        self._lock, self._runs = threading.Lock(), set()
        if self._users:
            self._users = 0
            tracemalloc.stop()


tracing = Tracing()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tracing.forget)


# --- trace_allocations: records which lines of a worker's tasks allocated what they held ----------

logger = logging.getLogger(__name__)

#: Seconds between two looks at how much a task run holds.
LOOK_EVERY = 0.05
#: Bytes from which what a task run holds is looked at, and by how much more it must be each time.
LEAST, MORE = 100_000, 1.2
#: The share of the time that looks may take.
SHARE = 0.05
#: The most functions of a worker.
MOST_FUNCTIONS = 200


class _Function:
    """What was traced of a function."""

    def __init__(self) -> None:
        self.runs = self.left_out = 0
        #: `runs` and `left_out` as they were last written.
        self.written = (0, 0)
        #: The bytes of the fullest moment that was written.
        self.fullest = 0


class Allocations:
    """Observes the tasks of a worker.

    Parameters
    ----------
    worker
        The worker; only read.
    rows
        Of the file.
    guard
        Handles errors.
    """

    def __init__(self, worker: Any, rows: FileRows, guard: HookGuard) -> None:
        self._worker, self._rows, self._guard = worker, rows, guard
        self._lock = threading.Lock()
        self._functions: dict[str, _Function] = {}
        #: When the next look may be taken.
        self._due = 0.0

    def wrap(self, run: Run) -> Run:
        """Return a function that runs another, whose first argument is a task, and traces it."""

        @functools.wraps(run)
        def run_traced(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            function = None
            try:
                function = self._function(key_split(task.key))
            except Exception:
                self._guard.caught(RUN_TASK)
            traced = tracing.begin(max(LEAST, MORE * function.fullest) if function else math.inf)
            try:
                return run(task, *args, **kwargs)
            finally:
                try:
                    if function is not None:
                        self._ended(task.key, function, traced)
                except Exception:
                    self._guard.caught(RUN_TASK)
                finally:
                    tracing.end(traced)

        return run_traced

    def _function(self, name: str) -> _Function | None:
        with self._lock:
            if name not in self._functions:
                if len(self._functions) >= MOST_FUNCTIONS:
                    self._rows.losses.add("too many functions traced")
                    return None
                self._functions[name] = _Function()
            return self._functions[name]

    def look(self) -> None:
        """Look at what the task run that goes on holds, if it holds more than before."""
        traced = tracing.run_alone()
        if traced is None or monotonic() < self._due:
            return
        held, peak = tracemalloc.get_traced_memory()
        if held < max(traced.least, MORE * traced.fullest.size):
            return
        traced.peak = max(traced.peak, peak)
        begin = monotonic()
        moment = look()
        # What another one allocates since may be in it.
        if moment is not None and tracing.run_alone() is traced:
            traced.fullest = moment
        del moment
        tracemalloc.reset_peak()  # the look's own
        end = monotonic()
        self._due = end + (end - begin) / SHARE

    def _ended(self, key: Any, function: _Function, traced: TracedRun) -> None:
        """Write what a task run held, in its thread."""
        traced.peak = max(traced.peak, tracemalloc.get_traced_memory()[1])
        self.look()
        with self._lock:
            function.runs += traced.alone
            function.left_out += not traced.alone
            if not traced.alone or traced.fullest.size <= function.fullest:
                return
            function.fullest = traced.fullest.size
        self._write(key, traced.fullest, max(traced.peak, traced.fullest.size))

    def _write(self, key: Any, moment: Moment, peak: int) -> None:
        task = self._worker.state.tasks.get(key)
        run = {"key": key, "run_id": getattr(task, "run_id", None), "name": key_split(key)}
        for stack, size, blocks in moment.stacks:
            facts = {"size": size, "blocks": blocks, "seen": moment.size, "peak": peak}
            self._rows.write(ALLOCATION, run | facts, stack)

    def count(self) -> None:
        """Write how many task runs were traced, of functions of which there is news."""
        for name, function in list(self._functions.items()):
            counted = function.runs, function.left_out
            if counted != function.written:
                function.written = counted
                facts = {"name": name, "runs": counted[0], "left_out": counted[1]}
                self._rows.write(TRACED_FUNCTION, facts)


def trace_allocations(
    worker: Any, rows: FileRows, guard: HookGuard, undo: list[Callable[[], object]]
) -> None:
    """Trace the allocations of a worker's tasks.

    Parameters
    ----------
    worker
        The worker.
    rows
        Of the file.
    guard
        Handles errors.
    undo
        Gets what ends it, to be called from last to first.
    """
    try:
        if availability() != "available":
            raise RuntimeError(availability())
        tracing.start()
    except RuntimeError as error:
        logger.warning("memory='tracemalloc': allocations are not traced: %s", error)
        rows.write(TRACED_FUNCTION, {"runs": 0, "left_out": 0, "refused": str(error)})
        return
    undo.append(tracing.stop)
    allocations = Allocations(worker, rows, guard)
    undo.append(allocations.count)
    leave = observe(worker, allocations.wrap)
    if leave is not None:
        undo.append(leave)
    counting = Pulse(f"allocations {worker.name}", [allocations.count], guard)
    looking = Pulse(f"live {worker.name}", [allocations.look], guard, LOOK_EVERY)
    for pulse in (counting, looking):
        pulse.start()
        undo.append(pulse.stop)
