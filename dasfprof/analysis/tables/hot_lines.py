"""In which lines, functions and libraries tasks spend their time, and how; the tree of calls."""

from __future__ import annotations

from collections.abc import Hashable
from typing import get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.stack_samples.call_tree import CallTree
from dasfprof.analysis.stack_samples.hot_places import hot_places
from dasfprof.analysis.stack_samples.places import UNKNOWN, By, all_stacks
from dasfprof.analysis.stack_samples.task_samples import samples_of
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text, whole
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.state import Frame
from dasfprof.errors import InvalidArgumentError


def has_task_samples(trace: Trace) -> bool:
    """Return whether stacks of tasks were sampled."""
    return len(trace.task_samples) > 0


@question(
    "Lines that take the time",
    "lines",
    short="lines",
    expendable=("Interpreter's Lock (s)", "Uncertain (s)", "Samples"),
    needs=has_task_samples,
)
def hot_lines(
    run: Run, function: str | None = None, step: str | None = None, by: By = "line"
) -> pd.DataFrame:
    """Sum up the samples of stacks of tasks by line, function or library.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: of any.
    step
        Of the pipeline; None: of any.
    by
        What a row is: a line of the program (of the user's own code; where a stack has none, the
        innermost line), the innermost function, or its library.

    Returns
    -------
    DataFrame
        A row each, the longest first:

        - ``File``, ``Line``, ``Code`` (the function that it is in) and ``Inside`` (the library's
          call in which most of its time was spent; empty: in none), by line; ``File`` and ``Code``,
          by function; ``Library``, by library. ``(unknown)``: the function is C code, or the stack
          is not in the file
        - ``Time (s)``: each sample stands for the time since the one before
        - ``Share (%)`` of all these samples; ``Margin (points)``: by how much it may be off, in 95
          of 100 cases
        - ``Computing (s)``: on a core; ``Waiting for a core (s)``: it could have run;
          ``Interpreter's Lock (s)``: other threads of the process ran Python code; ``Waiting (s)``:
          for anything else, such as a lock, a disk, the network. NA where the kernel does not count
        - ``Uncertain (s)``: by how much each of the first three may well be off, see below
        - ``Samples``: how many. Threads that tasks start, coroutines and other processes have none

    Notes
    -----
    Where a host has no free core, the sampler waits for one as well. Lines that wait, or give up
    the interpreter's lock, are then seen more often than they should be: they leave it the core.

    Python lets the sampler look where a call begins or has ended and where a loop turns. What a
    line does after its last call, such as an operator or the freeing of what it made, may count for
    the next line.

    What all task runs of a function computed is known, and for how long they had no core. Of lines
    that is an estimate: where tasks compete for the interpreter's lock, or for cores, a line at
    which they mostly wait for it gets too much of the computing. ``Uncertain (s)`` says so. It is
    next to nothing where one of the three has nearly all of the function's time, or one line has.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: choose one of {', '.join(get_args(By))}.")
    found = hot_places(run, function, step, by)
    columns = _names(found.names, by)
    if by == "line":
        columns["Inside"] = text(np.array(found.inside, dtype=object))
    spent = found.spent
    return pd.DataFrame(
        {
            **columns,
            "Time (s)": spent.seconds,
            "Share (%)": spent.share * 100,
            "Margin (points)": spent.margin * 100,
            "Computing (s)": spent.computing,
            "Waiting for a core (s)": spent.core_wait,
            "Interpreter's Lock (s)": spent.lock_wait,
            "Waiting (s)": spent.waiting,
            "Uncertain (s)": spent.uncertain,
            "Samples": spent.samples,
        }
    )


def _names(names: list[Hashable], by: By) -> dict[str, pd.Series]:
    def column(part: int) -> pd.Series:
        texts = [name[part] if isinstance(name, tuple) else UNKNOWN for name in names]
        return text(np.array(texts, dtype=object))

    if by == "library":
        return {"Library": text(np.array([name or UNKNOWN for name in names], dtype=object))}
    if by == "function":
        return {"File": column(0), "Code": column(1)}
    lines = [name.line if isinstance(name, Frame) else np.nan for name in names]
    return {"File": column(1), "Line": whole(np.array(lines, dtype=float)), "Code": column(0)}


@question("Tree of calls", "lines", short="calls", needs=has_task_samples)
def call_tree(
    run: Run, function: str | None = None, step: str | None = None, least: float = 1.0
) -> pd.DataFrame:
    """Sum up the samples of stacks of tasks by call, from the tasks' functions inwards.

    Parameters
    ----------
    function, step
        See `hot_lines`.
    least
        Calls of a smaller share are left out, percent.

    Returns
    -------
    DataFrame
        A row a call, each followed by those that it makes, the longest first:

        - ``Depth``: 0 for the functions that Dask calls
        - ``Code``, ``File``
        - ``Time (s)``, ``Share (%)``: of it and of what it calls
        - ``Self (s)``: of it alone
        - ``Samples``
    """
    samples, _ = samples_of(run, function, step)
    stacks = Groups(samples.stack, len(run.trace.stacks))
    seconds, unknown = stacks.sum(samples.interval), samples.interval[samples.stack < 0].sum()
    total = float(seconds.sum() + unknown)
    tree = CallTree(all_stacks(run), seconds, stacks.sizes)
    kept = [call for call in tree.calls() if total and call.seconds >= least / 100 * total]
    return pd.DataFrame(
        {
            "Depth": np.array([call.depth for call in kept], dtype=np.int64),
            "Code": text(np.array([call.function for call in kept], dtype=object)),
            "File": text(np.array([call.file for call in kept], dtype=object)),
            "Time (s)": np.array([call.seconds for call in kept], dtype=float),
            "Share (%)": np.array([call.seconds / total * 100 for call in kept], dtype=float),
            "Self (s)": np.array([call.own_seconds for call in kept], dtype=float),
            "Samples": np.array([call.samples for call in kept], dtype=np.int64),
        }
    )
