"""`FunctionProfile`: what was counted of the task runs of one function on a worker."""

from __future__ import annotations

import os
import pstats
from pathlib import Path
from typing import Any

from dasfprof.recording.call_profiles.engines import CallTimes, Engine

#: The most functions that are called by the task runs of one. Endless new code would fill memory.
MOST_CALLED = 20_000


class Profiler:
    """A profiler, and how many task runs it has observed. Used by one thread at a time."""

    __slots__ = ("own", "runs")

    def __init__(self, own: Any) -> None:
        self.own = own
        self.runs = 0


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
        self.idle: list[Profiler] = []
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
            times = engine.call_times(profiler.own)
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
