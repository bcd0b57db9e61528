"""Profiles of the function calls inside tasks, made with cProfile.

`CallProfiles` profiles one task run per process at a time, sums the profiles of each function, and
writes each sum to a ``.pstats`` file next to the trace. A task run that starts while another task
run is being profiled is only counted.
"""

from __future__ import annotations

import cProfile
import functools
import logging
import os
import pstats
import re
import sys
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass
from threading import get_ident
from time import time
from typing import Any

from dask.utils import key_split

from dasfprof.database import FileDatabase
from dasfprof.recording.dask_internals.task_functions import (
    RUN_TASK,
    TaskCallable,
    availability,
    observe,
)
from dasfprof.recording.rows import FileRows
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.schema.profiles import CALL_PROFILE

logger = logging.getLogger(__name__)

#: Seconds between two writes of the files. A killed process loses the profiles of at most this
#: time.
WRITE_EVERY = 10.0
#: Maximum number of profiled functions per worker. Each of them has a file.
MOST_FUNCTIONS = 200
#: Maximum number of called functions in a profile. Otherwise a program that creates functions
#: repeatedly would fill the memory.
MOST_CALLED = 20_000

#: The module `sys.monitoring`, or None before Python 3.12.
_MONITORING: Any = getattr(sys, "monitoring", None)
#: Names of cProfile's methods that receive the events of `sys.monitoring`, by event.
_METHODS = {
    **dict.fromkeys(("PY_START", "PY_RESUME", "PY_THROW"), "_pystart_callback"),
    **dict.fromkeys(("PY_RETURN", "PY_YIELD", "PY_UNWIND"), "_pyreturn_callback"),
    **dict.fromkeys(("C_RETURN", "C_RAISE"), "_creturn_callback"),
    "CALL": "_ccall_callback",
}
#: Number of this tool in `sys.monitoring`, which Python assigns to no other tool. The number of
#: cProfile remains free, so that tasks can use cProfile themselves.
_TOOL = 4
#: The calls by which this module ends a profile. Before Python 3.12, the profile contains them.
_ENDS = (
    ("~", 0, "<method 'disable' of '_lsprof.Profiler' objects>"),
    ("~", 0, "<built-in method sys.getprofile>"),
)


#: Lock that is held while a task run of this process is being profiled.
_profiling = threading.Lock()


class ThreadProfile(cProfile.Profile):
    """A profile of only the thread that calls `start`.

    Since Python 3.12, cProfile itself receives the events of all threads, and then reports wrong
    times.
    """

    #: Whether another profiler replaced this one during the task run, or an event could not be
    #: counted.
    is_damaged = False

    def start(self) -> bool:
        """Start profiling and return True, or return False if another profiler is active."""
        if _MONITORING is None:
            is_free = sys.getprofile() is None
            if is_free:
                self.enable()
            return is_free
        if _MONITORING.get_tool(_TOOL) is not None:
            return False
        _MONITORING.use_tool_id(_TOOL, "dasfprof")
        events = _MONITORING.events
        for name, method in _METHODS.items():
            callback = self._of_thread(getattr(self, method), get_ident())
            _MONITORING.register_callback(_TOOL, getattr(events, name), callback)
        counted = (getattr(events, name) for name in _METHODS if not name.startswith("C_"))
        _MONITORING.set_events(_TOOL, sum(counted))  # The events C_* come with CALL.
        return True

    def stop(self) -> None:
        """Stop profiling."""
        if _MONITORING is None:
            active: Any = sys.getprofile()
            self.is_damaged = active is not self
            if not self.is_damaged:
                self.disable()
            return
        _MONITORING.set_events(_TOOL, 0)
        for name in _METHODS:
            _MONITORING.register_callback(_TOOL, getattr(_MONITORING.events, name), None)
        _MONITORING.free_tool_id(_TOOL)

    def _of_thread(self, method: Callable[..., object], thread: int) -> Callable[..., None]:
        def count(*event: Any) -> None:
            if get_ident() == thread:
                try:
                    method(*event)
                except Exception:  # Otherwise the error would be raised in the task.
                    self.is_damaged = True

        return count

    def create_stats(self) -> None:
        """Create the statistics that `pstats` reads, without the profiler's own calls."""
        self.snapshot_stats()
        self.stats = {
            function: figures
            for function, figures in self.stats.items()
            if figures[0] and function[0] != __file__ and function not in _ENDS
        }


@dataclass
class FunctionProfile:
    """The sum of the profiles of a function's task runs."""

    #: Part of the file name that identifies the function.
    file_part: str
    #: The sum as `pstats.Stats`, or None if no task run was profiled.
    stats: Any = None
    #: Number of task runs that were profiled, and number of task runs that were not profiled.
    runs: int = 0
    left_out: int = 0
    #: Values of `runs` and `left_out` when the file was last written.
    written: tuple[int, int] = (0, 0)


class CallProfiles:
    """Profiles the task runs of a worker.

    Parameters
    ----------
    database
        The database of the plugin that records task runs. The profiles are written to the directory
        of the database's file.
    rows
        Writes rows into this file.
    hidden
        Keys of tasks that are not profiled.
    """

    def __init__(self, database: FileDatabase, rows: FileRows, hidden: Container[Any]) -> None:
        self._database, self._rows, self._hidden = database, rows, hidden
        self._guard = rows.guard
        self._functions: dict[str, FunctionProfile] = {}
        #: Lock that is held while profiles are changed or written.
        self._lock = threading.Lock()

    def wrap(self, run: TaskCallable) -> TaskCallable:
        """Return a function that calls `run` and profiles the call."""

        @functools.wraps(run)
        def run_profiled(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            profile = None if task.key in self._hidden else self._start(task)
            if profile is None:
                return run(task, *args, **kwargs)
            try:
                return run(task, *args, **kwargs)
            finally:
                self._stop(task, profile)

        return run_profiled

    def _start(self, task: Any) -> ThreadProfile | None:
        """Start and return a profile, or return None if the task run cannot be profiled."""
        profile = None
        try:
            function = self._function(key_split(task.key))
            if function is None:
                self._database.writer.losses.add("too many functions")
                return None
            called = 0 if function.stats is None else len(function.stats.stats)
            if called <= MOST_CALLED and _profiling.acquire(blocking=False):
                try:
                    started = ThreadProfile()
                    profile = started if started.start() else None
                finally:
                    if profile is None:
                        _profiling.release()
            if profile is None:
                with self._lock:
                    function.left_out += 1
        except Exception:
            self._guard.caught(RUN_TASK)
        return profile

    def _function(self, name: str) -> FunctionProfile | None:
        with self._lock:
            if name not in self._functions and len(self._functions) < MOST_FUNCTIONS:
                part = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:80] or "_"
                if part in {function.file_part for function in self._functions.values()}:
                    part = f"{part[:70]}-{len(self._functions)}"
                self._functions[name] = FunctionProfile(part)
            return self._functions.get(name)

    def _stop(self, task: Any, profile: ThreadProfile) -> None:
        try:
            try:
                profile.stop()
            finally:
                _profiling.release()
            function = self._functions[key_split(task.key)]
            with self._lock:
                if profile.is_damaged:
                    function.left_out += 1
                    return
                function.runs += 1
                if function.stats is None:
                    function.stats = pstats.Stats(profile)
                else:
                    function.stats.add(profile)
        except Exception:
            self._guard.caught(RUN_TASK)

    def commit(self) -> None:
        """Write the files whose profiles have changed."""
        with self._lock:
            for name, function in self._functions.items():
                if (function.runs, function.left_out) == function.written:
                    continue
                try:
                    self._write(name, function)
                except Exception:
                    self._guard.caught("writing a profile of calls")

    def _write(self, name: str, function: FunctionProfile) -> None:
        """Replace the ``.pstats`` file of a function, and append a row that describes the file."""
        # The file's name is final only after the first commit has created the file.
        if not self._database.path.exists():
            self._database.commit()
        path = self._database.paths[0].with_suffix(f".{function.file_part}.pstats")
        function.written = function.runs, function.left_out
        if function.stats is not None:
            # The file is replaced in one step, so that it is never incomplete.
            unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
            try:
                function.stats.dump_stats(unfinished)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)
        file = path.name if function.stats is not None and function.stats.stats else None
        row = time(), file, name, "cprofile", *function.written, None
        self._rows.append((CALL_PROFILE, row))


def profile_calls(
    worker: Any,
    database: FileDatabase,
    rows: FileRows,
    hidden: Container[Any],
    undo: list[Callable[[], object]],
) -> CallProfiles | None:
    """Start to profile the tasks of a worker.

    Parameters
    ----------
    database, rows, hidden
        See `CallProfiles`.
    undo
        List to which this function appends functions that end the profiling. They must be called
        from last to first.

    Returns
    -------
    CallProfiles or None
        None if this version of Python or Dask does not allow profiling. An event then contains the
        reason.
    """
    refused = None if availability() == "available" else availability()
    if _MONITORING is not None and not set(_METHODS.values()) <= set(dir(cProfile.Profile)):
        refused = f"cProfile of Python {sys.version.split()[0]} cannot profile a single thread"
    if refused is not None:
        logger.warning("profiler='cprofile': the calls of tasks are not profiled: %s", refused)
        rows.append((CALL_PROFILE, (time(), None, None, "cprofile", 0, 0, refused)))
        return None
    profiles = CallProfiles(database, rows, hidden)
    undo.append(profiles.commit)
    leave = observe(worker, profiles.wrap)
    if leave is not None:
        undo.append(leave)
    pulse = Pulse(f"call-profiles {worker.name}", profiles.commit, rows.guard, WRITE_EVERY)
    undo.append(pulse.stop)
    return profiles
