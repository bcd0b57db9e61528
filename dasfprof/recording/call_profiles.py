"""`CallProfiles`: runs a worker's tasks under a profiler, and writes what that counts."""

from __future__ import annotations

import functools
import logging
import os
import pstats
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any

from dask.utils import key_split

from dasfprof.config.options import ProfilerName
from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.recording.call_engines import (
    CallTimes,
    Engine,
    Run,
    counts_right,
    make_engine,
)
from dasfprof.recording.dask_internals.task_functions import RUN_TASK, availability, observe
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.schema.profiles import CALL_PROFILE

# --- `FunctionProfile`: what was counted of the task runs of one function on a worker -------------

#: The most functions that are called by the task runs of one. Endless new code would fill memory.
MOST_CALLED = 20_000


class _Counted:
    """What `pstats` takes for a profiler."""

    def __init__(self, times: CallTimes) -> None:
        self.stats = times

    def create_stats(self) -> None:
        """Do nothing."""


class FunctionProfile:
    """The profilers of a function's task runs, and their sum.

    A thread takes a profiler out of `idle` and puts it back after the task: so whoever sums them up
    never meets one that counts.
    """

    def __init__(self, file_part: str) -> None:
        #: Its part of the file's name.
        self.file_part = file_part
        self.idle: list[Any] = []
        #: Task runs in the sum, and those that could not be profiled.
        self.runs = 0
        self.left_out = 0
        #: `left_out` and `runs` as they were last written.
        self.written = (0, 0)
        self._sum: pstats.Stats | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has called too many functions to go on."""
        return self._sum is not None and self.called > MOST_CALLED

    @property
    def called(self) -> int:
        """How many functions were called."""
        return 0 if self._sum is None else len(self._sum.stats)  # type: ignore[attr-defined]

    def sum_up(self, engine: Engine) -> bool:
        """Add what idle profilers have counted; return whether there is anything to write."""
        for _ in range(len(self.idle)):  # no more: threads put back as fast as they are taken
            try:
                profiler = self.idle.pop()
            except IndexError:  # a thread was faster
                break
            times = engine.call_times(profiler)
            if not times:
                continue
            counted: Any = _Counted(times)
            if self._sum is None:
                self._sum = pstats.Stats(counted)
            else:
                self._sum.add(counted)
            self.runs += profiler.runs
        return (self.runs, self.left_out) != self.written

    def write(self, path: Path) -> None:
        """Write the sum, if there is any: the file is whole at any moment."""
        if self._sum is not None:
            unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
            try:
                self._sum.dump_stats(unfinished)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        self.written = self.runs, self.left_out


logger = logging.getLogger(__name__)

#: Seconds after which files are written anew: what is lost if the process is killed.
WRITE_EVERY = 10.0
#: The most functions of a worker that are profiled, each with a file.
MOST_FUNCTIONS = 200


class CallProfiles:
    """Observes the tasks of a worker.

    Parameters
    ----------
    engine
        What counts calls.
    profiler
        Its name.
    database
        The file of the plugin: the others stand beside it, and it says so.
    note
        Takes rows of `CALL_PROFILE`.
    guard
        Handles errors.
    """

    def __init__(
        self,
        engine: Engine,
        profiler: ProfilerName,
        database: FileDatabase,
        note: Callable[[tuple[Any, ...]], object],
        guard: HookGuard,
    ) -> None:
        self._engine, self._profiler = engine, profiler
        self._database, self._guard = database, guard
        self._functions: dict[str, FunctionProfile] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._due = monotonic() + WRITE_EVERY
        self._note = note

    def wrap(self, run: Run) -> Run:
        """Return a function that runs another, whose first argument is a task, under a profiler."""
        engine, guard = self._engine, self._guard

        @functools.wraps(run)
        def run_profiled(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            function = profiler = None
            try:
                function, profiler = self._take(task)
            except Exception:
                guard.caught(RUN_TASK)
            if function is None or profiler is None:
                return run(task, *args, **kwargs)
            try:
                return engine.call(profiler, run, (task, *args), kwargs)
            finally:
                self._put_back(function, profiler)

        return run_profiled

    def _take(self, task: Any) -> tuple[FunctionProfile | None, Any]:
        """Return the function of a task and a profiler; None where it cannot be profiled."""
        name = key_split(task.key)
        function = self._functions.get(name) or self._add(name)
        if function is None:
            self._database.writer.losses.add("too many functions")
            return None, None
        if function.is_full or self._engine.is_taken():
            self._leave_out(function, 1)
            return None, None
        try:
            return function, function.idle.pop()
        except IndexError:
            return function, self._engine.new()

    def _add(self, name: str) -> FunctionProfile | None:
        with self._lock:
            if name in self._functions or len(self._functions) >= MOST_FUNCTIONS:
                return self._functions.get(name)
            part = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:80] or "_"
            if part in {function.file_part for function in self._functions.values()}:
                part = f"{part[:70]}-{len(self._functions)}"
            function = self._functions[name] = FunctionProfile(part)
            return function

    def _leave_out(self, function: FunctionProfile, runs: int) -> None:
        with self._lock:
            function.left_out += runs

    def _put_back(self, function: FunctionProfile, profiler: Any) -> None:
        try:
            profiler.runs += 1
            if profiler.spoilt:
                self._leave_out(function, profiler.runs)
            else:
                function.idle.append(profiler)
        except Exception:
            self._guard.caught(RUN_TASK)

    def look(self) -> None:
        """Write what is due."""
        if monotonic() >= self._due:
            self.commit()

    def commit(self) -> None:
        """Write the files of which there is news, without the task runs that go on."""
        with self._writing:
            for name, function in list(self._functions.items()):
                try:
                    if function.sum_up(self._engine):
                        self._write(name, function)
                except Exception:
                    self._guard.caught("writing a profile of calls")
            self._due = monotonic() + WRITE_EVERY

    def _write(self, name: str, function: FunctionProfile) -> None:
        if not self._database.path.exists():  # it is created by the first event, under a free name
            self._database.commit()
        path = self._database.paths[0].with_suffix(f".{function.file_part}.pstats")
        function.write(path)
        file = path.name if function.called else None
        self._note((time(), file, name, self._profiler, *function.written, None))


def profile_calls(
    worker: Any,
    profiler: ProfilerName | None,
    database: FileDatabase,
    constants: dict[str, Any],
    undo: list[Callable[[], object]],
) -> CallProfiles | None:
    """Profile the tasks of a worker, if that is asked for.

    Parameters
    ----------
    worker
        The worker.
    profiler
        Which one; None: none.
    database
        See `CallProfiles`.
    constants
        Fields with the same value in every event.
    undo
        Gets what ends it, to be called from last to first.
    """
    if profiler is None:
        return None
    guard = HookGuard(database.writer)
    source = Source.of(CALL_PROFILE, constants)
    database.writer.add_source(source)
    note = partial(database.writer.append, source)
    try:
        engine = _started(profiler, undo)
    except RuntimeError as error:
        logger.warning("profiler=%r: the calls of tasks are not profiled: %s", profiler, error)
        note((time(), None, None, profiler, 0, 0, str(error)))
        return None
    profiles = CallProfiles(engine, profiler, database, note, guard)
    undo.append(profiles.commit)
    leave = observe(worker, profiles.wrap)
    if leave is not None:
        undo.append(leave)
    pulse = Pulse(f"call-profiles {worker.name}", [profiles.look], guard)
    pulse.start()
    undo.append(pulse.stop)
    return profiles


def _started(profiler: ProfilerName, undo: list[Callable[[], object]]) -> Engine:
    """Return the profiler, ready for use.

    Raises
    ------
    RuntimeError
        If this Python or this Dask does not allow it.
    """
    if availability() != "available":
        raise RuntimeError(availability())
    engine = make_engine(profiler)
    engine.start()
    undo.append(engine.stop)
    if not engine.is_taken() and not counts_right(engine):
        raise RuntimeError("it miscounts the calls of this Python")
    return engine
