"""`trace_allocations`: records which lines of a worker's tasks allocated what they held."""

from __future__ import annotations

import functools
import logging
import math
import threading
import tracemalloc
from collections.abc import Callable
from time import monotonic
from typing import Any

from dask.utils import key_split

from dasfprof.recording.allocations.moments import Moment, look
from dasfprof.recording.allocations.tracing import TracedRun, tracing
from dasfprof.recording.dask_internals.task_functions import (
    RUN_TASK,
    Run,
    availability,
    observe,
)
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.recording.under_way.rows import UnderWayRows
from dasfprof.schema.allocations import ALLOCATION, TRACED_FUNCTION

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

    def __init__(self, worker: Any, rows: UnderWayRows, guard: HookGuard) -> None:
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
    worker: Any, rows: UnderWayRows, guard: HookGuard, undo: list[Callable[[], object]]
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
