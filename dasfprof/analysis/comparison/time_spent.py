"""Where two groups of runs spent their time: parts of the total time, and stack samples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.functions import By
from dasfprof.analysis.model.accounting import make_accounts
from dasfprof.analysis.model.critical_path import SegmentKind, path_segments, running_on_path
from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.model.thread_time import NEEDS_SCHEDULER, ThreadTime
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import By as Place
from dasfprof.analysis.stack_samples.places import hot_places
from dasfprof.analysis.tables.critical_path import KINDS
from dasfprof.analysis.tables.hot_lines import place_columns
from dasfprof.analysis.tables.time_accounting import NO_TASK
from dasfprof.database.columns import Array

#: Seconds by a pair of category and function (or step).
Parts = dict[tuple[str, str], float]
_SECONDS = ["Before (s)", "After (s)", "Difference (s)"]

#: Categories into which the time of functions on the critical path is divided, if they are known
#: for all runs.
_RUNNING = (
    ThreadTime.COMPUTING,
    ThreadTime.WAITING_FOR_A_CORE,
    ThreadTime.WAITING_FOR_STORAGE,
    ThreadTime.BLOCKED,
)
#: Labels of the categories in which a function runs.
RUNNING = (KINDS[SegmentKind.COMPUTE][0], *(spent.label for spent in _RUNNING))
MEANINGS = {spent.label: spent.meaning for spent in ThreadTime} | dict(KINDS.values())


@dataclass(frozen=True)
class Evidence:
    """Facts that are known for all runs of a comparison.

    Categories that some runs do not distinguish are merged for all runs.
    """

    #: Whether it is known when functions used the CPU and when they waited for CPU.
    running: bool
    #: Whether events of the scheduler are known.
    scheduler: bool

    @classmethod
    def from_runs(cls, traces: Sequence[Run]) -> Evidence:
        """Return the facts that are known for all of these runs."""
        running = [trace.tasks[["cpu", "run_queue"]].to_numpy(dtype=float) for trace in traces]
        return cls(
            all(np.isfinite(columns).all(axis=1).any() for columns in running),
            all("sent" in trace.tasks for trace in traces),
        )


def path_parts(trace: Run, by: By, evidence: Evidence) -> Parts:
    """Divide the seconds of the critical path by category and function (or step).

    The sum is the wall time from the first submission to the last known finish.
    """
    segments = path_segments(trace)
    kinds, seconds = [segments.kind], [segments.length]
    labels = [KINDS[kind][0] for kind in SegmentKind]
    # If some runs do not distinguish categories, the same time would have different names in the
    # two groups, and appear as a difference.
    if evidence.running:
        kinds, seconds = _split_running(trace, len(labels))
        labels += [spent.label for spent in _RUNNING]
    if not evidence.scheduler:
        for kind in (SegmentKind.CLIENT, SegmentKind.SCHEDULER):
            labels[kind] = KINDS[SegmentKind.UNKNOWN][0]
    codes, names = groups_by(by, trace.tasks, trace.unseen)
    of_segments = np.tile(codes[segments.rows], len(kinds))
    return _summed(labels, names, np.concatenate(kinds), of_segments, np.concatenate(seconds))


def thread_parts(trace: Run, by: By, evidence: Evidence) -> Parts:
    """Divide the thread time of all workers by category and function (or step).

    Idle threads have the name `NO_TASK`.
    """
    names, seconds = make_accounts(trace).with_idle(by, NO_TASK)
    labels = [spent.label for spent in ThreadTime]
    if not evidence.running:
        for spent in (*_RUNNING, ThreadTime.RUNNING_CPU_UNKNOWN):
            labels[spent] = KINDS[SegmentKind.COMPUTE][0]
    if not evidence.scheduler:
        for spent in NEEDS_SCHEDULER:
            labels[spent] = ThreadTime.IDLE_CAUSE_UNKNOWN.label
    codes, kinds = np.nonzero(seconds)
    # The sum of all parts is the number of threads of each worker, multiplied by the seconds for
    # which the worker existed.
    return _summed(labels, names, kinds, codes, seconds[codes, kinds])


def _split_running(trace: Run, first: int) -> tuple[list[Array], list[Array]]:
    """Return the kinds and the seconds of path segments, where running functions are divided.

    In both lists, the first array is for the segments that are not divided. Each further array is
    for one activity of functions. Its kind is a code for the activity, counted from `first`.
    """
    segments, split = path_segments(trace), running_on_path(trace)
    known = np.isfinite(split.blocked)
    # Segments whose activity is unknown keep their kind.
    kinds, seconds = [segments.kind], [np.where(known, 0.0, segments.length)]
    for number, part in enumerate(split, first):
        kinds.append(np.full(len(segments.kind), number))
        seconds.append(np.where(known, np.nan_to_num(part), 0.0))
    return kinds, seconds


def _summed(
    labels: list[str], names: list[str], kinds: Array, codes: Array, seconds: Array
) -> Parts:
    sums: dict[tuple[str, str], float] = {}
    count = max(len(names), 1)
    pairs, inverse = np.unique(kinds.astype(np.int64) * count + codes, return_inverse=True)
    totals = np.bincount(inverse.ravel(), weights=seconds, minlength=len(pairs))
    for pair, total in zip(pairs.tolist(), totals.tolist(), strict=True):
        part = labels[pair // count], str(names[pair % count])
        sums[part] = sums.get(part, 0.0) + total
    return {part: total for part, total in sums.items() if total != 0.0}


def make_waterfall(before: Sequence[Parts], after: Sequence[Parts], name: str) -> pd.DataFrame:
    """Return how much each category of each function or step contributes to the difference.

    `before` and `after` are the parts of the time for each run of the group. The columns are
    ``Class``, `name`, ``Before (s)``, ``After (s)`` (means of the runs), ``Difference (s)``,
    ``Meaning``, and rows with the largest difference come first.
    """
    first, second = _mean(before), _mean(after)
    rows = []
    # Nothing is rounded or left out, so the sum of each column of seconds is the total.
    for part in dict.fromkeys([*first, *second]):
        old, new = first.get(part, 0.0), second.get(part, 0.0)
        rows.append((*part, old, new, new - old, MEANINGS[part[0]]))
    table = pd.DataFrame(rows, columns=["Class", name, *_SECONDS, "Meaning"], dtype=object)
    return _largest_first(table)


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    """Sort a table by the absolute difference of seconds in descending order."""
    table[_SECONDS] = table[_SECONDS].astype(float)
    order = np.argsort(-table[_SECONDS[2]].abs().to_numpy(), kind="stable")
    return table.take(order).reset_index(drop=True)


def _mean(runs: Sequence[Parts]) -> Parts:
    """Return the mean of each part over all runs."""
    sums: Parts = {}
    for parts in runs:
        for part, seconds in parts.items():
            sums[part] = sums.get(part, 0.0) + seconds
    # A part that a run does not have counts as 0.
    return {part: seconds / len(runs) for part, seconds in sums.items()}


def compare_places(before: Sequence[Run], after: Sequence[Run], by: Place) -> pd.DataFrame:
    """Return a table of lines, functions or libraries. See `RunComparison.hot_lines`."""
    sides = [[run for run in side if len(run.task_samples)] for side in (before, after)]
    first, second = (_places(side, by) for side in sides) if all(sides) else ({}, {})
    names = list(dict.fromkeys([*first, *second]))
    old, new = (np.array([side.get(x, 0.0) for x in names]) for side in (first, second))
    seconds = dict(zip(_SECONDS, (old, new, new - old), strict=True))
    return _largest_first(pd.DataFrame({**place_columns(names, by), **seconds}))


def _places(side: Sequence[Run], by: Place) -> dict[Hashable, float]:
    """Return the seconds that each line, function or library took, averaged over the runs."""
    sums: dict[Hashable, float] = {}
    for trace in side:
        hot = hot_places(trace, by=by)
        for name, seconds in zip(hot.names, hot.spent.seconds.tolist(), strict=True):
            sums[name] = sums.get(name, 0.0) + seconds / len(side)
    return sums
