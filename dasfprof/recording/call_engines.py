"""`make_engine`: the profilers that count calls, each of one thread at a time.

cProfile sees one thread up to Python 3.11. From 3.12 on it gets the events of all threads of the
process: a profile has the calls of event loops and other tasks, nested in those of its own thread,
with wrong times, also where one thread alone runs tasks. So there its methods are called with the
events of one thread only, in the way that it would register them itself (`ThreadFilter`). Its tool
is another than cProfile's, which tasks may use as without us.
"""

from __future__ import annotations

import cProfile
import os
import profile
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from dasfprof.config.options import ProfilerName

Run = Callable[..., Any]
#: As in `pstats`, by file, line and function: primitive calls, calls, seconds without and with the
#: functions that it calls, and the same by caller.
Place = tuple[str, int, str]
CallTimes = dict[Place, tuple[int, int, float, float, dict[Any, Any]]]

#: From Python 3.12 on.
_MONITORING: Any = getattr(sys, "monitoring", None)
#: How cProfile calls its methods for the events of `sys.monitoring`.
_METHODS = {
    "PY_START": "_pystart_callback",
    "PY_RESUME": "_pystart_callback",
    "PY_THROW": "_pystart_callback",
    "PY_RETURN": "_pyreturn_callback",
    "PY_YIELD": "_pyreturn_callback",
    "PY_UNWIND": "_pyreturn_callback",
    "CALL": "_ccall_callback",
    "C_RETURN": "_creturn_callback",
    "C_RAISE": "_creturn_callback",
}
#: The numbers of tools that Python has given to none.
_FREE_TOOLS = (4, 3)
#: What turns cProfile off is no part of the task.
_OWN = ("~", 0, "<method 'disable' of '_lsprof.Profiler' objects>")


class _CProfiler(cProfile.Profile):
    spoilt, runs = False, 0


class Engine:
    """A way to count the calls of a thread: cProfile where it counts those of one thread."""

    def start(self) -> None:
        """Prepare the process; each call is undone by one of `stop`."""

    def stop(self) -> None:
        """Undo `start`."""

    def is_taken(self) -> bool:
        """Return whether another profiler is active in this thread, so that ours cannot be."""
        return sys.getprofile() is not None

    def new(self) -> Any:
        """Return one that has counted nothing. Its `spoilt` says if it cannot be used."""
        return _CProfiler()

    def call(self, profiler: Any, run: Run, args: Any, kwargs: Any) -> Any:
        """Run a function under a profiler, in this thread; raises what the function raises."""
        profiler.enable()
        try:
            return run(*args, **kwargs)
        finally:
            profiler.spoilt = sys.getprofile() is not profiler  # the task has set another
            if not profiler.spoilt:
                profiler.disable()

    def call_times(self, profiler: Any) -> CallTimes:
        """Return what a profiler that is not used any more has counted."""
        # Its own sum keeps one code object of those with the same place, and each task that brings
        # its function along has one.
        times: CallTimes = {}
        callers: dict[Place, dict[Place, Any]] = {}
        for entry in profiler.getstats():
            place = _place_of(entry.code)
            primitive, calls = entry.callcount - entry.reccallcount, entry.callcount
            own = primitive, calls, entry.inlinetime, entry.totaltime
            added = _added(times.get(place), own)
            times[place] = (*added, callers.setdefault(place, {}))
            for call in entry.calls or ():
                by = callers.setdefault(_place_of(call.code), {})
                figures = (call.callcount, call.callcount - call.reccallcount)
                by[place] = _added(by.get(place), (*figures, call.inlinetime, call.totaltime))
        times.pop(_OWN, None)
        return times


def _place_of(code: Any) -> Place:
    if isinstance(code, str):  # of C
        return "~", 0, code
    return code.co_filename, code.co_firstlineno, code.co_name


def _added(before: Any, figures: tuple[Any, ...]) -> Any:
    if before is None:
        return figures
    return tuple(one + other for one, other in zip(before, figures, strict=False))


class ThreadFilter(Engine):
    """cProfile with the events of one thread, where Python has `sys.monitoring`."""

    def __init__(self) -> None:
        #: The profiler of each thread that is in a profiled task.
        self._profilers: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._users = 0
        self._tool: int | None = None

    def start(self) -> None:
        """Listen to the calls of the process.

        Raises
        ------
        RuntimeError
            If other tools have all the numbers that a tool can have.
        """
        with self._lock:
            if not self._users:
                self._tool = self._listen()
            self._users += 1

    def stop(self) -> None:
        """Stop listening, if nobody else does."""
        with self._lock:
            self._users -= 1
            if not self._users and self._tool is not None:
                _MONITORING.set_events(self._tool, 0)
                for event in _METHODS:
                    _MONITORING.register_callback(
                        self._tool, getattr(_MONITORING.events, event), None
                    )
                _MONITORING.free_tool_id(self._tool)
                self._tool = None

    def is_taken(self) -> bool:
        """Return whether another run profiles this thread; other tools have events of their own."""
        return get_ident() in self._profilers

    def call(self, profiler: Any, run: Run, args: Any, kwargs: Any) -> Any:
        """Run a function under a profiler."""
        profilers, thread = self._profilers, get_ident()
        profilers[thread] = profiler
        try:
            return run(*args, **kwargs)
        finally:
            if thread in profilers:
                del profilers[thread]  # a call would be counted, and have no end

    def forget(self) -> None:
        """Profile nothing in a forked child."""
        self._profilers.clear()

    def _listen(self) -> int:
        tool = next((number for number in _FREE_TOOLS if not _MONITORING.get_tool(number)), None)
        if tool is None:
            raise RuntimeError("other tools listen to this process already")
        _MONITORING.use_tool_id(tool, "dasfprof")
        events = 0
        for name, method in _METHODS.items():
            event = getattr(_MONITORING.events, name)
            _MONITORING.register_callback(tool, event, self._filtered(method))
            if name not in ("C_RETURN", "C_RAISE"):  # they come with CALL
                events |= event
        _MONITORING.set_events(tool, events)
        return tool

    def _filtered(self, method: str) -> Callable[..., None]:
        profiler_of = self._profilers.get

        def call_method(*args: Any) -> None:
            profiler = profiler_of(get_ident())
            if profiler is not None:
                try:
                    getattr(profiler, method)(*args)
                except Exception:  # it would be raised into the task
                    profiler.spoilt = True

        return call_method


_CALLS = ("call", "c_call")


class _PureProfiler(profile.Profile):
    """`profile.Profile`, whose own failures end it: Python raises them into what it profiles."""

    spoilt, runs = False, 0
    cur: Any
    dispatcher: Any
    fake_frame: Any

    def observe(self, frame: Any, event: str, arg: Any) -> None:
        try:
            # What turned it on returns without having been called.
            if event in _CALLS or not isinstance(self.cur[-2], self.fake_frame):
                self.dispatcher(frame, event, arg)
        except Exception:
            self.spoilt = True
            sys.setprofile(None)

    def end_calls(self) -> None:
        """End the calls that go on, such as that which turned the profiler off."""
        try:
            self.simulate_cmd_complete()
        except Exception:
            self.spoilt = True


class _PurePython(Engine):
    """`profile`, in pure Python."""

    def new(self) -> Any:
        return _PureProfiler()

    def call(self, profiler: Any, run: Run, args: Any, kwargs: Any) -> Any:
        profiler.set_cmd("a task")
        ours = profiler.observe  # one object, to know it again
        sys.setprofile(ours)
        try:
            return run(*args, **kwargs)
        finally:
            if sys.getprofile() is ours:
                sys.setprofile(None)
                profiler.end_calls()
            else:
                profiler.spoilt = True

    def call_times(self, profiler: Any) -> CallTimes:
        profiler.snapshot_stats()
        times: CallTimes = profiler.stats
        return {place: times[place] for place in times if place[0] != "profile"}


_filter = ThreadFilter()


def _one() -> None:
    """Be called, to see if that is counted."""


def _three() -> None:
    for _ in range(3):
        _one()


def counts_right(engine: Engine) -> bool:
    """Return whether a profiler that was started counts three calls as three."""
    profiler = engine.new()
    engine.call(profiler, _three, (), {})
    counted = {place[2]: figures[0] for place, figures in engine.call_times(profiler).items()}
    return not profiler.spoilt and counted.get("_one") == 3 and counted.get("_three") == 1


def make_engine(name: ProfilerName) -> Engine:
    """Return the profiler of a name.

    Raises
    ------
    RuntimeError
        If this Python cannot count the calls of one thread alone.
    """
    if name == "profile":
        return _PurePython()
    if not hasattr(sys, "monitoring"):
        return Engine()
    lacking = sorted({each for each in _METHODS.values() if not hasattr(_CProfiler, each)})
    if lacking:
        raise RuntimeError(
            f"cProfile of Python {sys.version_info.major}.{sys.version_info.minor} mixes the calls "
            "of all threads of a process, and has no means to tell them apart; use "
            'profiler="profile"'
        )
    return _filter


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_filter.forget)
