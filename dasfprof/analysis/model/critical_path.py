"""The critical path: the chain of waits and work that determined the duration of the run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pandas as pd

from dasfprof.analysis.model.links import CLIENT, NOTHING, find_predecessors
from dasfprof.analysis.model.thread_time import RunningSeconds, recorded_column, running_seconds
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.run_end import taken_back
from dasfprof.analysis.run.task_runs import to_ticks
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


class SegmentKind(IntEnum):
    """Kind of a segment of the critical path: the work or the wait that filled its time."""

    CLIENT = 0
    SCHEDULER = 1
    ON_ITS_WAY = 2
    TRANSFER = 3
    WORKER = 4
    UNSPILL = 5
    TASK_OVERHEAD = 6
    COMPUTE = 7
    UNKNOWN = 8
    LOST = 9


#: Segments of a task run on the path, in order. They begin at the finish that bound the run. Each
#: segment ends at the named time of the task run.
_STEPS = (
    ("arrival", SegmentKind.CLIENT),
    ("first_sent", SegmentKind.SCHEDULER),
    ("lost", SegmentKind.LOST),
    ("sent", SegmentKind.SCHEDULER),
    ("received", SegmentKind.ON_ITS_WAY),
    ("ready", SegmentKind.TRANSFER),
    ("executing", SegmentKind.WORKER),
    ("unspilled", SegmentKind.UNSPILL),
    ("start", SegmentKind.TASK_OVERHEAD),
    ("stop", SegmentKind.COMPUTE),
    ("done", SegmentKind.TASK_OVERHEAD),
    ("known", SegmentKind.SCHEDULER),
)


@dataclass(frozen=True)
class CriticalPath:
    """The critical path from its first task run to its last, as rows of `TaskSlots`."""

    rows: Array
    #: For each task run: the time of the finish that bound it, and the time at which the path
    #: continues with the next task run.
    begin: Array
    end: Array
    #: End of each segment, with shape (`_STEPS`, task runs).
    edges: Array


@dataclass(frozen=True)
class PathSegments:
    """The non-empty segments of the critical path, in order."""

    #: Rows of `TaskSlots`, and the `SegmentKind` of each segment.
    rows: Array
    kind: Array
    #: Start in seconds since the start of the run, and duration in seconds.
    begin: Array
    length: Array


@once_per_trace
def path_segments(run: Run) -> PathSegments:
    """Return the segments of the critical path."""
    path = find_path(run)
    begins = np.vstack([path.begin, path.edges[:-1]])
    lengths = path.edges - begins
    row, step = np.nonzero(lengths.T > 0)
    kinds = np.array([kind for _, kind in _STEPS], dtype=np.int64)
    if "sent" not in run.tasks:
        kinds[:5] = SegmentKind.UNKNOWN
    kind = kinds[step]
    unknown = run.slots.reception_unknown[path.rows[row]]
    kind[unknown & (kind == SegmentKind.ON_ITS_WAY)] = SegmentKind.UNKNOWN
    return PathSegments(path.rows[row], kind, begins[step, row], lengths[step, row])


@once_per_trace
def find_path(run: Run) -> CriticalPath:
    """Return the path from the last finish back to the first submission."""
    slots, predecessors = run.slots, find_predecessors(run)
    times = slots.times
    rows, enters = [], []
    row = int(np.argmax(times.known)) if len(times) else -1
    enter = times.known[row] if len(times) else 0.0
    bound, at = predecessors.row, predecessors.time
    while row >= 0:
        rows.append(row)
        enters.append(enter)
        row, enter = int(bound[row]), at[row]
    path, end = np.array(rows[::-1], dtype=np.int64), np.array(enters[::-1])
    # Because clocks differ, a task run may seem to have ended before the task run that it waited
    # for. The path must not go back in time, so that the sum of its segments is the wall time.
    end = np.minimum.accumulate(end[::-1])[::-1]
    begin = np.append(run.first_arrival, end[:-1])[: len(path)]
    edges = np.empty((len(_STEPS), len(path)))
    disk = recorded_column(run.tasks, "disk_read", len(slots.worker))
    unspilled = to_ticks(np.minimum(times.executing + disk, times.start))
    by_client = np.isin(predecessors.kind[path], (CLIENT, NOTHING))
    lost = _lost_before(run, predecessors.asked)
    stages = {**vars(times), "unspilled": unspilled, "sent": slots.sent, **lost}
    for step, (stage, _) in enumerate(_STEPS):
        edges[step] = stages[stage][path]
    edges[0] = np.where(by_client, edges[0], begin)
    return CriticalPath(path, begin, end, np.clip(edges, begin, end))


def _lost_before(run: Run, asked: Array) -> dict[str, Array]:
    """Return, for each task run, when earlier attempts or results of its key were lost.

    ``arrival`` and ``first_sent`` are the earliest arrival and assignment of the lost attempts.
    ``lost`` is the time at which the last of them was lost. If nothing was lost, all three are the
    arrival of the task run itself.
    """
    slots, only = run.slots, run.scheduler_only
    times = {name: slots.times.arrival.copy() for name in ("arrival", "first_sent", "lost")}
    left = run.left
    if not np.isfinite(left).any():
        return times
    gone = only["sent"].notna().to_numpy() & ~only["lost"].to_numpy(dtype=bool)
    unfinished, abandoned = run.unfinished, taken_back(run, only)[gone]
    keys = run.of_slots("key_id")
    parts = (
        (only["key_id"].to_numpy()[gone][abandoned], keys),
        (unfinished.known[abandoned], left[slots.worker]),
        (unfinished.arrival[abandoned], slots.times.arrival),
        (unfinished.sent[abandoned], slots.sent),
    )
    key, until, came, sent = (np.concatenate(pair) for pair in parts)
    again = _next_of_key(key, until, keys, slots.sent)
    for index, row in enumerate(again.tolist()):
        # If a client requested the key again, the task run does not replace the lost one.
        if row >= 0 and not asked[row] and sent[index] < slots.sent[row]:
            times["arrival"][row] = min(times["arrival"][row], came[index])
            times["first_sent"][row] = min(times["first_sent"][row], sent[index])
            times["lost"][row] = max(times["lost"][row], until[index])
    return times


def _next_of_key(key: Array, time: Array, keys: Array, times: Array) -> Array:
    """Return, for each `key` and `time`, the first row with this key at or after this time, or -1.

    Row ``i`` has the key ``keys[i]`` and the time ``times[i]``.
    """
    wanted, there = (
        pd.DataFrame({"key": of, "time": at, "row": np.arange(len(of))})
        .dropna()
        .sort_values("time", kind="stable")
        for of, at in ((key, time), (keys, times))
    )
    pairs = pd.merge_asof(wanted, there, "time", by="key", direction="forward")
    rows = np.full(len(key), -1, dtype=np.int64)
    rows[pairs["row_x"]] = pairs["row_y"].fillna(-1)
    return rows


def path_seconds(run: Run) -> float:
    """Return the wall time from the first submission to the last known finish, or NaN."""
    path = find_path(run)
    return float(path.end[-1] - path.begin[0]) if len(path.rows) else float("nan")


def running_on_path(run: Run) -> RunningSeconds:
    """Split the seconds in functions by activity, for each segment of the critical path.

    Values are NaN if no function ran in the segment, or if they are unknown.
    """
    segments = path_segments(run)
    rows, duration = segments.rows, run.tasks["duration"].to_numpy(dtype=float)
    known = np.flatnonzero((segments.kind == SegmentKind.COMPUTE) & (rows < len(duration)))
    # A segment may cover only a part of a function's time.
    share = ratio(segments.length[known], duration[rows[known]])
    parts = np.full((4, len(rows)), np.nan)
    parts[:, known] = [part[rows[known]] * share for part in running_seconds(run.tasks)]
    return RunningSeconds(*parts)
