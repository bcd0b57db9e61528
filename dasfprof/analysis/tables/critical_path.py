"""The critical path: segment by segment, and summed up."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.critical_path import (
    SegmentKind,
    path_segments,
    running_on_path,
)
from dasfprof.analysis.model.predecessors import (
    NAMES,
    find_predecessors,
)
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import running_columns, step_column, text
from dasfprof.errors import InvalidArgumentError

By = Literal["function", "step"]

#: The label of each kind of segment, and what it means.
KINDS = {
    SegmentKind.CLIENT: (
        "Client",
        "The client had not submitted the task yet; it may have waited for earlier results, or "
        "for calls of actors.",
    ),
    SegmentKind.SCHEDULER: (
        "Scheduler",
        "The task was at the scheduler, or word of its end was at it or on its way to it.",
    ),
    SegmentKind.ON_ITS_WAY: (
        "On its way",
        "The task had been sent to its worker, which had not taken it in.",
    ),
    SegmentKind.TRANSFER: ("Transfer", "The task's inputs were fetched from other workers."),
    SegmentKind.WORKER: (
        "Worker",
        "The task was ready, a thread was free, and the worker had not begun it.",
    ),
    SegmentKind.UNSPILL: ("Unspill", "Inputs were read back from disk."),
    SegmentKind.TASK_OVERHEAD: (
        "Task overhead",
        "The task held its thread before or after its function.",
    ),
    SegmentKind.COMPUTE: ("Compute", "The task's function ran."),
    SegmentKind.UNKNOWN: (
        "Unknown",
        "The task had not begun on its worker; without a file of the scheduler, or of the worker, "
        "nothing tells why.",
    ),
}
_LABELS = np.array([KINDS[kind][0] for kind in SegmentKind], dtype=object)
_MEANINGS = np.array([KINDS[kind][1] for kind in SegmentKind], dtype=object)


@question("The critical path, segment by segment", "time")
def critical_path(run: Run) -> pd.DataFrame:
    """Return the chain of waits and work that made the run as long as it was.

    From the last finish it goes back to the first submission, through whatever each task run
    had to wait for last: the task before it on its thread, the dependency that was known
    last, a place in the scheduler's queue, or the client.

    Returns
    -------
    DataFrame
        A row a segment, in the order of time; they touch, and sum to the wall time from the
        first submission to the last known finish:

        - ``Start (s)`` (from the trace's begin), ``Duration (s)``
        - ``Kind``: ``Client``, ``Scheduler``, ``Transfer``, ``Worker`` (it had not begun the
          task though it could), ``Unspill``, ``Task overhead``, ``Compute``
        - ``Function``, ``Task Key``, ``Run ID``, ``Host``, ``Worker``: of the task run that
          waited or ran
        - ``Bound By``: what ties that run to the one before it on the path: ``dependency``,
          ``thread``, ``queue``, ``steal``, ``client``

    Notes
    -----
    Which event made the scheduler send a task is known by equal stimulus ids. Without a
    scheduler's file dependencies and threads are all that binds, and what else delays a
    task has the kind ``Unknown``. Dask does not record what a client waits for: it is taken
    to be the last of its futures that finished before it submitted the next; where a file
    does not tell which tasks had futures, the last task.
    """
    found, slots, workers = path_segments(run), run.ended.slots, run.trace.workers
    rows = found.rows
    return pd.DataFrame(
        {
            "Start (s)": found.begin,
            "Duration (s)": found.length,
            "Kind": text(_LABELS[found.kind]),
            "Function": text(np.array(slots.functions, dtype=object)[slots.function[rows]]),
            "Task Key": text(run.trace.keys.texts(run.ended.column("key_id")[rows])),
            "Run ID": run.ended.column("run_id")[rows],
            "Host": text(workers["host"].to_numpy(dtype=object)[slots.worker[rows]]),
            "Worker": text(workers["worker"].to_numpy(dtype=object)[slots.worker[rows]]),
            "Bound By": text(np.array(NAMES, dtype=object)[find_predecessors(run).kind[rows]]),
            **step_column(run.ended, rows),
        }
    )


@question("The critical path, summed up", "time")
def critical_path_summary(run: Run, by: By = "function") -> pd.DataFrame:
    """Sum up the critical path by kind and function, or step.

    Parameters
    ----------
    by
        ``"function"`` or ``"step"``.

    Returns
    -------
    DataFrame
        A row a kind and function (or step), the longest first: ``Kind``, ``Function`` (or
        ``Step``, ``(no step)`` for tasks of none), ``Duration (s)``, ``Share (%)`` of the path,
        ``Task Runs``; what of it functions spent in ``CPU (s)``, ``Waiting for a core (s)``
        and ``Blocked (s)`` (NA for other kinds, and where nobody recorded it); ``Meaning`` of
        the kind.
    """
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    slots, found = run.ended.slots, path_segments(run)
    if by == "step":
        codes, names = run.ended.steps
    else:
        codes, names = slots.function, slots.functions
    pairs, distinct = pd.factorize(found.kind * len(names) + codes[found.rows].astype(np.int64))
    groups = Groups(pairs, len(distinct))
    kinds, labels = np.divmod(distinct, max(len(names), 1))
    seconds = groups.sum(found.length)
    runs = np.unique(np.stack([pairs, found.rows]), axis=1)[0]
    summary = pd.DataFrame(
        {
            "Kind": text(_LABELS[kinds]),
            by.capitalize(): text(np.array(names, dtype=object)[labels]),
            "Duration (s)": seconds,
            "Share (%)": ratio(seconds, found.length.sum()) * 100,
            "Task Runs": np.bincount(runs, minlength=len(distinct)),
            **running_columns(running_on_path(run), groups.told),
            "Meaning": text(_MEANINGS[kinds]),
        }
    )
    order = np.argsort(-seconds, kind="stable")
    return summary.take(order).reset_index(drop=True)
