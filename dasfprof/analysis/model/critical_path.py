"""The chain of waits and work that made the run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd

from dasfprof.analysis.model.busy_time import running_seconds
from dasfprof.analysis.model.constraints import (
    CLIENT,
    NAMES,
    NOTHING,
    Constraints,
    find_constraints,
)
from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.model.slots import TaskSlots, task_slots, unseen_runs
from dasfprof.analysis.model.steps import step_column, step_groups
from dasfprof.analysis.model.times import to_ticks
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array
from dasfprof.errors import InvalidArgumentError

By = Literal["function", "step"]

#: Kinds of segments of a path, and what each means.
KINDS = {
    "Client": "The client had not submitted the task yet; it may have waited for earlier results.",
    "Scheduler": "The task, or word of its end, was at the scheduler or on its way from or to it.",
    "Transfer": "The task's inputs were fetched from other workers.",
    "Worker": "The task was ready, a thread was free, and the worker had not begun it.",
    "Unspill": "Inputs were read back from disk.",
    "Task overhead": "The task held its thread before or after its function.",
    "Compute": "The task's function ran.",
    "Unknown": "The task had not reached its worker; without a scheduler's file nothing tells why.",
}

_COMPUTE = list(KINDS).index("Compute")

#: The segments of one run, from the finish that bound it to its own, and their kinds.
_STEPS = (
    ("arrival", "Client"),
    ("received", "Scheduler"),
    ("ready", "Transfer"),
    ("executing", "Worker"),
    ("unspilled", "Unspill"),
    ("start", "Task overhead"),
    ("stop", "Compute"),
    ("done", "Task overhead"),
    ("known", "Scheduler"),
)


@dataclass(frozen=True)
class CriticalPath:
    """The path, from its first task run to its last: rows of `TaskSlots`."""

    rows: Array
    #: For each run when the finish that bound it was, and when the path goes on to the next.
    begin: Array
    end: Array
    #: When each of its segments ended, of shape (`_STEPS`, runs).
    edges: Array


@dataclass(frozen=True)
class _Segments:
    """The segments of a path that take any time, in their order."""

    #: Rows of `TaskSlots`, and places in `KINDS`.
    rows: Array
    kind: Array
    begin: Array
    length: Array


def critical_path(trace: Trace) -> pd.DataFrame:
    """List the segments of the critical path; see `TraceAnalyser`."""
    return path_segments(trace, task_slots(trace), find_constraints(trace), find_path(trace))


def _segments(trace: Trace, path: CriticalPath) -> _Segments:
    begins = np.vstack([path.begin, path.edges[:-1]])
    with np.errstate(invalid="ignore"):  # of times beyond any clock
        lengths = path.edges - begins
    run, step = np.nonzero(lengths.T > 0)
    kinds = np.array([list(KINDS).index(kind) for _, kind in _STEPS])
    if "sent" not in trace.tasks:
        kinds[:2] = list(KINDS).index("Unknown")
    return _Segments(path.rows[run], kinds[step], begins[step, run], lengths[step, run])


def path_segments(
    trace: Trace, slots: TaskSlots, constraints: Constraints, path: CriticalPath
) -> pd.DataFrame:
    """List the segments of a path; see `TraceAnalyser.critical_path`."""
    found, workers = _segments(trace, path), trace.workers
    rows = found.rows
    return pd.DataFrame(
        {
            "Start (s)": found.begin,
            "Duration (s)": found.length,
            "Kind": text(np.array(list(KINDS), dtype=object)[found.kind]),
            "Function": text(np.array(slots.functions, dtype=object)[slots.function[rows]]),
            "Task Key": text(trace.keys.texts(run_columns(trace, "key_id")[rows])),
            "Run ID": run_columns(trace, "run_id")[rows],
            "Host": text(workers["host"].to_numpy(dtype=object)[slots.worker[rows]]),
            "Worker": text(workers["worker"].to_numpy(dtype=object)[slots.worker[rows]]),
            "Bound By": text(np.array(NAMES, dtype=object)[constraints.kind[rows]]),
            **step_column(trace, rows, unseen_runs(trace)),
        }
    )


def critical_path_summary(trace: Trace, by: By = "function") -> pd.DataFrame:
    """Sum up the critical path by kind and function, or step; see `TraceAnalyser`."""
    if by not in get_args(By):
        raise InvalidArgumentError(f"by={by!r}: give one of {', '.join(get_args(By))}.")
    slots, found = task_slots(trace), _segments(trace, find_path(trace))
    if by == "step":
        codes, names = step_groups(trace.tasks, unseen_runs(trace))
    else:
        codes, names = slots.function, slots.functions
    pairs, distinct = pd.factorize(found.kind * len(names) + codes[found.rows].astype(np.int64))
    groups = Groups(pairs, len(distinct))
    kinds, labels = np.divmod(distinct, max(len(names), 1))
    seconds = groups.sum(found.length)
    runs = np.unique(np.stack([pairs, found.rows]), axis=1)[0]
    texts = np.array(list(KINDS), dtype=object)[kinds]
    summary = pd.DataFrame(
        {
            "Kind": text(texts),
            by.capitalize(): text(np.array(names, dtype=object)[labels]),
            "Duration (s)": seconds,
            "Share (%)": ratio(seconds, found.length.sum()) * 100,
            "Task Runs": np.bincount(runs, minlength=len(distinct)),
            **{name: groups.told(part) for name, part in _split(trace, found).items()},
            "Meaning": text(np.array([KINDS[kind] for kind in texts], dtype=object)),
        }
    )
    order = np.argsort(-seconds, kind="stable")
    return summary.take(order).reset_index(drop=True)


def _split(trace: Trace, found: _Segments) -> dict[str, Array]:
    """Split the segments in which functions ran; NaN for the others, and where nothing tells.

    A segment that is a part of its run only has its share of each.
    """
    split = running_seconds(trace.tasks)
    rows, whole = found.rows, trace.tasks["duration"].to_numpy(dtype=float)
    told = np.flatnonzero((found.kind == _COMPUTE) & (rows < len(whole)))
    share = ratio(found.length[told], whole[rows[told]])
    parts = {}
    for name, seconds in split.items():
        parts[name] = np.full(len(rows), np.nan)
        parts[name][told] = seconds[rows[told]] * share
    return parts


@once_per_trace
def find_path(trace: Trace) -> CriticalPath:
    """Walk from the last finish back to the first submission, through what bound each run."""
    slots, constraints = task_slots(trace), find_constraints(trace)
    times = slots.times
    rows, enters = [], []
    row = int(np.argmax(times.known)) if len(times) else -1
    enter = times.known[row] if len(times) else 0.0
    bound, at = constraints.row, constraints.time
    while row >= 0:
        rows.append(row)
        enters.append(enter)
        row, enter = int(bound[row]), at[row]
    path, end = np.array(rows[::-1], dtype=np.int64), np.array(enters[::-1])
    begin = np.append(times.arrival.min(initial=np.inf), end[:-1])[: len(path)]
    edges = np.empty((len(_STEPS), len(path)))
    disk = np.zeros(len(slots.worker))
    if "disk_read" in trace.tasks:
        disk[: len(trace.tasks)] = np.nan_to_num(trace.tasks["disk_read"].to_numpy(dtype=float))
    unspilled = to_ticks(np.minimum(times.executing + np.maximum(disk, 0.0), times.start))
    by_client = np.isin(constraints.kind[path], (CLIENT, NOTHING))
    stages = {"unspilled": unspilled, **vars(times)}
    for step, (stage, _) in enumerate(_STEPS):
        edges[step] = stages[stage][path]
    edges[0] = np.where(by_client, edges[0], begin)
    return CriticalPath(path, begin, end, np.clip(edges, begin, end))


def run_columns(trace: Trace, name: str) -> Array:
    """Give a column of the rows of `TaskSlots`."""
    unseen = unseen_runs(trace)
    return np.concatenate([trace.tasks[name].to_numpy(), unseen[name].to_numpy()])
