"""What task runs were called with."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.annotations import annotation_texts
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array


def has_arguments(trace: Trace) -> bool:
    """Return whether arguments of a task run were recorded."""
    return len(trace.arguments) > 0


@question(
    "Arguments of task runs",
    "events",
    short="arguments",
    page="arguments",
    expendable=("Annotations", "Task Key"),
    needs=has_arguments,
)
def task_arguments(run: Run, function: str | None = None) -> pd.DataFrame:
    """List what task runs were called with, by type, dtype, shape and length.

    Known are those of runs of 10 ms and more, and of failed ones: the first 1,000 of each function
    on a worker.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a function, arguments and annotations, those with most seconds first:

        - ``Function``
        - ``Arguments``: name and type of each, with dtype and shape or length; ``result``: of
          another task. Values where they were asked for
        - ``Annotations``: priority, retries, resources, workers that Dask was asked for
        - ``Task Runs`` of those that are recorded, ``Time (s)`` of them, ``Median (s)``
        - ``Task Key`` of the first
    """
    table, tasks = run.trace.arguments, run.ended.tasks
    codes, names = run.trace.keys.functions()
    functions = codes[table["key_id"].to_numpy(dtype=np.int64)] if len(table) else _none()
    if function is not None:
        kept = functions == (names.index(function) if function in names else -1)
        table, functions = table[kept], functions[kept]
    runs = run_of_rows(tasks, table)
    annotations, annotation_names = annotation_texts(run.trace)
    told = np.append(annotations, 0)[runs]
    arguments = table["arguments"].astype("category").cat
    pairs = pd.DataFrame({"f": functions, "a": arguments.codes.to_numpy(), "t": told})
    groups = pairs.groupby(["f", "a", "t"], sort=False).ngroup().to_numpy(dtype=np.int64)
    _, first = np.unique(groups, return_index=True)
    spent = np.append(tasks["duration"].to_numpy(dtype=float), np.nan)[runs]
    grouped = Groups(groups, len(first))
    seconds, medians = grouped.sum(spent), grouped.median(spent)
    order = np.argsort(-seconds, kind="stable")
    at = first[order]
    known = [*map(str, arguments.categories), ""]
    return pd.DataFrame(
        {
            "Function": _texts([str(names[code]) for code in functions[at].tolist()]),
            "Arguments": _texts([known[code] for code in arguments.codes.to_numpy()[at].tolist()]),
            "Annotations": _texts([annotation_names[code] for code in told[at].tolist()]),
            "Task Runs": grouped.sizes[order],
            "Time (s)": seconds[order],
            "Median (s)": medians[order],
            "Task Key": text(run.trace.keys.texts(table["key_id"].to_numpy(dtype=np.int64)[at])),
        }
    )


def run_of_rows(tasks: pd.DataFrame, table: pd.DataFrame) -> Array:
    """Return the row of ``tasks`` of each row of a table of task runs; -1: there is none."""
    if not len(table) or not len(tasks):
        return np.full(len(table), -1, dtype=np.int64)
    runs = pd.MultiIndex.from_frame(tasks[RUN])
    first = np.flatnonzero(~runs.duplicated())
    found = runs[first].get_indexer(pd.MultiIndex.from_frame(table[RUN]))
    return np.where(found >= 0, first[found], -1)


def _none() -> Array:
    return np.empty(0, dtype=np.int64)


def _texts(items: list[str]) -> pd.Series:
    return text(np.array(items, dtype=object))
