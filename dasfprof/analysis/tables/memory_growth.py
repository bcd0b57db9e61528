"""How memory grows while a cluster goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.memory_growth import (
    MemoryGrowth,
    Moments,
    ProcessGrowth,
    growth_by_runs,
    memory_growth_of,
)
from dasfprof.analysis.numeric.significance import FEWEST, Course, Drift
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.memory_anatomy import REASONS
from dasfprof.analysis.tables.questions import question
from dasfprof.errors import InvalidArgumentError
from dasfprof.text import format_duration, format_size

By = Literal["cluster", "worker", "function"]

_CLASSES = {
    "memory": "processes of workers",
    "results": "results in memory",
    "spilled": "results spilled to disk",
    "unmanaged": "unmanaged: what processes have beyond results",
}
_SCHEDULER, _CLIENT = "process of the scheduler", "process of the client"
#: What a row tells beside figures: which memory, of whom, why it is held, the line that built it
#: and the one that made its futures.
_Row = tuple[str, str, Drift, str, str, str]


@question(
    "Memory that grows", "balance", expendable=("At Half (MB)", "Line", "Asked At"), needs="samples"
)
def memory_growth(run: Run, by: By = "cluster") -> pd.DataFrame:
    """Say which memory grows from one computation to the next, and how sure that is.

    Memory is compared at the ends of the times in which nothing was under way, the first of them
    after the first computation, which imports and fills caches. Of a run with fewer than eight such
    times, or times in which no sample was taken, 20 windows are compared, by the least memory
    beside results in each.

    Parameters
    ----------
    by
        ``cluster``: all workers that were there all the time together, the scheduler, the client,
        and the results of each function; ``worker``: each process of workers; ``function``: what
        stays in processes with the runs of a function beyond results.

    Returns
    -------
    DataFrame
        A row a class of memory (with ``by="function"`` a function, the most growing first):

        - ``Memory``, ``Worker`` or ``Function``
        - ``Compared``: the number of computations, or windows, from the first to the last, and what
          one is; with ``by="function"`` ``Task Runs``, and ``Alone``: those that no run of another
          function in the same process stands beside, which alone tell
        - ``At First (MB)``, ``At Half (MB)``, ``At Last (MB)``
        - ``Each (MB)``: the mean change with each computation, window or run; the true one is
          between ``At Least (MB)`` and ``At Most (MB)`` in 95 of 100 cases, if it goes on as it
          did; NA: fewer than eight values
        - ``Verdict``: *rises* only where it did in both halves, by no less than half as much in the
          second, and zero is outside of the interval
        - ``Why Held``, ``Line`` of the program that built it, ``Asked At``: of most of a function's
          results at last, see `memory_at`

    Notes
    -----
    Changes are taken for a random walk with drift: the interval is that of Student's t of the
    changes. Of unmanaged memory that rises no trace tells a leak from what malloc keeps after it
    was freed; ``client.run(trim)`` with ``ctypes.CDLL("libc.so.6").malloc_trim(0)`` would.

    Raises
    ------
    InvalidArgumentError
        If `by` is none of these.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    if by == "function":
        return _by_function(run)
    found, workers = memory_growth_of(run), run.named
    titles = np.array(workers.titles(), dtype=object)[workers.of_lives]
    if by == "worker":
        rows = [
            row
            for process in found.processes
            for row in _of_process(", ".join(dict.fromkeys(titles[process.lives])), process)
        ]
    else:
        rows = list(_of_cluster(found))
    moments = found.moments
    table = pd.DataFrame(
        {
            "Memory": text(np.array([row[0] for row in rows], dtype=object)),
            "Worker": text(np.array([row[1] for row in rows], dtype=object)),
            "Compared": text(np.full(len(rows), _compared(moments), dtype=object)),
            **_figures([row[2] for row in rows], _unit(moments)),
            "Why Held": text(np.array([row[3] for row in rows], dtype=object)),
            "Line": text(np.array([row[4] for row in rows], dtype=object)),
            "Asked At": text(np.array([row[5] for row in rows], dtype=object)),
        }
    )
    return table.drop(columns="Worker" if by == "cluster" else ["Why Held", "Line", "Asked At"])


def _of_cluster(found: MemoryGrowth) -> Iterator[_Row]:
    if found.together is not None:
        yield from _of_process("", found.together)
    for name, drift in ((_SCHEDULER, found.scheduler), (_CLIENT, found.client)):
        if drift is not None:
            yield name, "", drift, "", "", ""
    for one in sorted(found.functions, key=lambda one: one.size.first - one.size.last):
        held = REASONS[one.why] if one.why >= 0 else ""
        yield f"results of {one.function}", "", one.size, held, one.line, one.asked


def _of_process(who: str, process: ProcessGrowth) -> Iterator[_Row]:
    for name, told in _CLASSES.items():
        yield told, who, getattr(process, name), "", "", ""


def _by_function(run: Run) -> pd.DataFrame:
    found = growth_by_runs(run)
    table = pd.DataFrame(
        {
            "Function": text(np.array([one.function for one in found], dtype=object)),
            "Task Runs": np.array([one.runs for one in found], dtype=np.int64),
            "Alone": np.array([one.alone for one in found], dtype=np.int64),
            **_figures([one.drift for one in found], "run"),
        }
    )
    return table.drop(columns=["At First (MB)", "At Half (MB)"]).rename(
        columns={"At Last (MB)": "Stayed (MB)"}
    )


def _figures(drifts: Sequence[Drift], unit: str) -> dict[str, pd.Series]:
    names = {
        "At First (MB)": "first",
        "At Half (MB)": "half",
        "At Last (MB)": "last",
        "Each (MB)": "each",
        "At Least (MB)": "least",
        "At Most (MB)": "most",
    }
    numbers = {
        label: pd.Series([getattr(one, name) / 1e6 for one in drifts], dtype=float)
        for label, name in names.items()
    }
    verdicts = np.array([_verdict(one, unit) for one in drifts], dtype=object)
    return {**numbers, "Verdict": text(verdicts)}


def _compared(moments: Moments) -> str:
    if not len(moments):
        return "nothing"
    if np.isnan(moments.window):
        return f"{moments.steps.sum():.0f} computations"
    return f"{len(moments) - 1} windows of {format_duration(moments.window)}"


def _unit(moments: Moments) -> str:
    return "computation" if np.isnan(moments.window) else "window"


def _verdict(drift: Drift, unit: str) -> str:
    rise, since = drift.last - drift.first, drift.last - drift.half
    if drift.course is Course.FEW:
        return f"Too few values: {FEWEST} are needed."
    if drift.course is Course.RISES:
        return f"Rises by {format_size(drift.each)} with each {unit}."
    if drift.course is Course.AT_FIRST:
        return f"Rose at first: of {format_size(rise)} {format_size(since)} in the second half."
    return "No steady rise."
