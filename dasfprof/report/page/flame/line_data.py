"""In which lines functions and task runs were sampled, for their own panes: `LineData`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.stack_samples.places import UNKNOWN, Places, places
from dasfprof.analysis.stack_samples.spent import Parts, Split, split
from dasfprof.analysis.stack_samples.task_samples import run_of_samples
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array
from dasfprof.report.page.packing import PackedColumn, in_group, seconds, whole_numbers

#: The most lines of a function, and functions, the longest first.
MOST_LINES, MOST_FUNCTIONS = 20, 300
#: The most samples whose task runs are told of: those of the runs that have the most.
MOST_SAMPLES = 200_000
#: Seconds in which times are told at the finest.
STEP = 1e-4


@dataclass(frozen=True)
class LineData:
    """The lines of the user's code, as `hot_lines` has them."""

    #: Of task runs, a row each and line: ``rows`` (of the page), ``places``, ``seconds`` and what
    #: they were spent with.
    columns: dict[str, PackedColumn]
    #: ``places`` (file, line, function), ``functions`` (by name: place, seconds, computing, waiting
    #: for a core, for the interpreter's lock, uncertain: seconds of each line), ``fewest``: task
    #: runs of fewer samples are left out.
    facts: dict[str, Any]

    @classmethod
    def of(
        cls, trace: Trace, rows: Array, stacks: Array, functions: Array, parts: Parts
    ) -> LineData:
        """Make the columns.

        Parameters
        ----------
        trace
            The trace.
        rows
            The row of the tasks of `with_open_runs` that each row of the page is about.
        stacks, functions, parts
            Of the samples of tasks, see `samples_of` and `parts_of`.
        """
        named = places(trace, "line")
        lines = named.of(stacks)
        used: dict[int, int] = {}
        columns, fewest = _of_runs(trace, rows, lines, parts, used)
        count = len(named.names)
        by_function = _of_functions(trace, functions * count + lines, parts, count, used)
        facts = {"places": _told(named, used), "functions": by_function, "fewest": fewest}
        return cls(columns, facts)


def _of_runs(
    trace: Trace, rows: Array, lines: Array, parts: Parts, used: dict[int, int]
) -> tuple[dict[str, PackedColumn], int]:
    """Return the columns of task runs, and the fewest samples that one has."""
    tasks = with_open_runs(trace).tasks
    place = np.full(len(tasks) + 1, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    of_page = place[run_of_samples(trace)] if len(lines) else lines
    counts = np.bincount(of_page[of_page >= 0], minlength=len(rows))
    most_first = np.sort(counts)[::-1]
    taken = int(np.searchsorted(np.cumsum(most_first), MOST_SAMPLES, "right"))
    fewest = int(most_first[taken]) + 1 if taken < len(counts) else 1
    kept = np.flatnonzero((of_page >= 0) & (np.append(counts, 0)[of_page] >= fewest))
    count = int(lines.max(initial=0)) + 1
    codes, pairs = pd.factorize(of_page[kept] * count + lines[kept], sort=True)
    found = split(parts.take(kept).summed(codes, len(pairs)))
    of_rows, names = np.divmod(pairs, count)
    numbers = [used.setdefault(name, len(used)) for name in names.tolist()]
    columns = {
        "rows": whole_numbers(of_rows, delta=True),
        "places": whole_numbers(np.array(numbers, dtype=np.int64)),
        **{name: seconds(values, step=STEP) for name, values in _spent(found)},
    }
    return in_group("run-lines", columns), fewest


def _of_functions(
    trace: Trace, groups: Array, parts: Parts, count: int, used: dict[int, int]
) -> dict[str, list[list[float | None]]]:
    """Return the longest lines of each function; `groups`: function and line of each sample."""
    codes, pairs = pd.factorize(groups)
    found = split(parts.summed(codes, len(pairs)))
    of_function, of_line = np.divmod(pairs, count)
    order = np.argsort(-found.seconds, kind="stable")
    tasks = with_open_runs(trace).tasks
    names = list(map(str, tasks["function"].cat.categories)) if "function" in tasks else []
    listed: dict[str, list[list[float | None]]] = {}
    for pair in order.tolist():
        function = int(of_function[pair]) - 1
        if function < 0 or (names[function] not in listed and len(listed) >= MOST_FUNCTIONS):
            continue
        of_it = listed.setdefault(names[function], [])
        if len(of_it) < MOST_LINES:
            place = used.setdefault(int(of_line[pair]), len(used))
            of_it.append([place, *(_number(values[pair]) for _, values in _spent(found))])
    return listed


def _spent(found: Split) -> list[tuple[str, Array]]:
    return [
        ("seconds", found.seconds),
        ("computing", found.computing),
        ("core", found.core_wait),
        ("lock", found.lock_wait),
        ("uncertain", found.uncertain),
    ]


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _told(named: Places, used: dict[int, int]) -> list[list[Any]]:
    """Return file, line (0: unknown) and function of places, in the order of their numbers."""
    frames = [named.names[number] for number in used]
    known = [each if isinstance(each, Frame) else Frame(UNKNOWN, "", 0) for each in frames]
    return [[frame.file, max(frame.line, 0), frame.function] for frame in known]
