"""`Experience`: how long task runs took in earlier runs, by their function and their line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.plan import plan

#: What an expectation rests on: task runs of the function that the same line built, those of the
#: function wherever it was built, or nothing.
Basis = Literal["line", "function", "nothing recorded"]

#: A line of the program: file, line.
Place = tuple[str, int]


@dataclass(frozen=True)
class Expectation:
    """What a task run is expected to take."""

    #: Thread seconds: the median over runs of a run's mean; None: unknown.
    seconds: float | None
    basis: Basis
    #: Runs and task runs that it rests on.
    runs: int = 0
    tasks: int = 0


class Experience:
    """What task runs of functions took in earlier runs.

    Parameters
    ----------
    traces
        The runs.
    """

    def __init__(self, traces: Iterable[Run]) -> None:
        #: Of each run: thread seconds and task runs, by function (place None), and by line too.
        self._runs = [_sums(trace) for trace in traces]

    def expect(self, function: str, place: Place | None) -> Expectation:
        """Return what a task run of a function is expected to take that a line has built."""
        levels: list[tuple[Basis, Place | None]] = [("function", None)]
        if place is not None:
            levels.insert(0, ("line", place))
        for basis, at in levels:
            found = [run[function, at] for run in self._runs if (function, at) in run]
            if found:
                means = [seconds / tasks for seconds, tasks in found]
                return Expectation(median(means), basis, len(found), sum(each[1] for each in found))
        return Expectation(None, "nothing recorded")


def _sums(trace: Run) -> dict[tuple[str, Place | None], tuple[float, int]]:
    """Return thread seconds and task runs by function and line; by function alone at None."""
    noted = trace.lines
    place_of = {
        line: (str(file), int(number))
        for line, file, number in zip(noted["line"], noted["file"], noted["number"], strict=True)
    }
    nodes = plan(trace)
    found: dict[tuple[str, Place | None], tuple[float, int]] = {}
    columns = (nodes[name] for name in ("Function", "Line", "Tasks", "Thread Time (s)"))
    for function, line, tasks, seconds in zip(*columns, strict=True):
        if tasks and np.isfinite(seconds):
            for key in {(function, None), (function, place_of.get(line))}:
                before = found.get(key, (0.0, 0))
                found[key] = before[0] + float(seconds), before[1] + int(tasks)
    return found
