"""The verdict on two groups of runs: which group is faster, how certain that is, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.functions import UNCERTAIN
from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.comparison.time_spent import RUNNING, Evidence
from dasfprof.analysis.model.critical_path import (
    SegmentKind,
    find_path,
    path_seconds,
    path_segments,
)
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.numeric.significance import CERTAIN, name_of_test, p_value
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.text import count_of, format_duration, format_share

#: Ratio of the standard deviation to the median absolute deviation of a normal distribution.
_TO_DEVIATION = 1.4826
#: Minimum number of task runs of a function from which their spread is estimated.
_ENOUGH = 4
#: Number of parts of a run whose speeds are compared. Then minimum number of task runs in a part.
_PARTS, _ENOUGH_IN_PART = 8, 4


def relative_spread(trace: Run) -> float:
    """Estimate the relative standard deviation of a run's wall time, or NaN if unknown."""
    tasks, wall = trace.tasks, path_seconds(trace)
    if not len(tasks) or not wall > 0:
        return float("nan")
    seconds = tasks["duration"].to_numpy(dtype=float)
    groups = Groups(tasks["function"].cat.codes.to_numpy(), len(tasks["function"].cat.categories))
    known = (groups.sizes >= _ENOUGH)[groups.codes]
    if not known.any():
        return float("nan")
    deviation = groups.deviation(seconds) * _TO_DEVIATION
    path = find_path(trace).rows
    path = path[path < len(tasks)]
    on_path = path[known[path]]
    # The wall time is the sum of the durations on the critical path, so its variance is the sum of
    # their variances.
    by_tasks = float(np.sqrt((deviation[groups.codes[on_path]] ** 2).sum())) / wall
    relative = seconds[known] / groups.median(seconds)[groups.codes[known]]
    # The speed of the host is assumed to change between runs as much as between eighths of this
    # run.
    by_speed = _spread_of_speed(tasks["start"].to_numpy(dtype=float)[known], relative)
    segments = path_segments(trace)
    ran = segments.length[segments.kind == SegmentKind.COMPUTE].sum() / segments.length.sum()
    return float(np.hypot(by_tasks, by_speed * ran))


def _spread_of_speed(start: Array, relative: Array) -> float:
    """Return how much the speed varied between parts of a run, as a relative standard deviation.

    `relative` contains the duration of each task run, divided by the median of its function.
    """
    edges = np.linspace(start.min(), start.max(), _PARTS + 1)[1:-1]
    parts = Groups(np.searchsorted(edges, start, side="right"), _PARTS)
    enough = parts.sizes >= _ENOUGH_IN_PART
    speeds, sizes = parts.median(relative)[enough], parts.sizes[enough]
    if np.count_nonzero(np.isfinite(speeds)) < 2:
        return 0.0
    of_tasks = _TO_DEVIATION * parts.deviation(relative)[enough]
    # Medians of few tasks also vary by chance (by 1.25 standard errors). This is subtracted.
    by_chance = float(np.mean((1.25 * of_tasks) ** 2 / sizes))
    return float(np.sqrt(max(float(speeds.var(ddof=1)) - by_chance, 0.0)))


Kind = Literal["faster", "slower", "no difference", "cannot tell"]

#: Minimum difference (fraction) that is reported if there is one run per group. Runs of the same
#: program on the same host differ by a few percent, which a single run cannot show.
LEAST_OF_SINGLE_RUNS = 0.05
#: Number of standard deviations within which the difference of two runs is in 99 of 100 cases.
_WITHIN = 2.58


@dataclass(frozen=True)
class Verdict:
    """Whether the runs after the change are faster or slower than the runs before the change."""

    kind: Kind
    #: Whether chance can be ruled out: p < 0.01, and several runs per group.
    certain: bool
    #: Mean wall time of each group in seconds, or NaN if unknown.
    means: tuple[float, float]
    #: p-value of the difference, or NaN if no test is possible.
    p: float
    #: A sentence with the difference, its certainty, and the number of runs.
    text: str

    @property
    def change(self) -> float:
        """The difference as a fraction of the time before. It is negative if runs became faster."""
        before, after = self.means
        return after / before - 1 if before > 0 else math.nan

    @property
    def difference(self) -> float:
        """The seconds by which the runs after the change take longer."""
        return self.means[1] - self.means[0]


def judge(before: Sequence[ComparedRun], after: Sequence[ComparedRun], least: float) -> Verdict:
    """Compare the wall times of two groups.

    `least` is the minimum difference (fraction) that is reported for one run per group. It is NaN
    if unknown.
    """
    first, second = walls(before), walls(after)
    means = float(first.mean()), float(second.mean())
    if refusal := _refusal(before, after):
        return Verdict("cannot tell", False, means, math.nan, refusal)
    change = means[1] / means[0] - 1
    words = f"{format_share(abs(change))} {'slower' if change > 0 else 'faster'}"
    by_how_much = (
        f"{words if change else 'as long'} "
        f"({format_duration(means[0])} → {format_duration(means[1])})"
    )
    if len(first) == len(second) == 1:
        return _of_single_runs(means, least, by_how_much)
    p = p_value(first, second)
    runs = f"{count_of(len(first), 'run')} {'each' if len(first) == len(second) else 'before'}"
    runs += f", {len(second)} after" if len(first) != len(second) else ""
    test = f"{runs}, p {p_in_words(p)} ({name_of_test(len(first), len(second))})"
    if p < CERTAIN:
        kind: Kind = "slower" if change > 0 else "faster"
        if min(len(first), len(second)) == 1:  # A single run may be an outlier.
            text = f"{by_how_much}, which is likely but not certain: {test}."
            return Verdict(kind, False, means, p, text)
        return Verdict(kind, True, means, p, f"{by_how_much}, certain: {test}.")
    text = f"No certain difference: {by_how_much} as observed; {test}."
    return Verdict("no difference", False, means, p, text)


def walls(side: Sequence[ComparedRun]) -> Array:
    """Return the wall times of the runs of one group."""
    return np.array([run.seconds for run in side], dtype=float)


def contributions(path: pd.DataFrame) -> list[tuple[str, float]]:
    """Return the difference in seconds per function and per category of waits, largest first.

    `path` is a waterfall.
    """
    ran = path["Class"].isin(RUNNING)
    who = path["Function"].where(ran, path["Class"].str.lower())
    sums = path["Difference (s)"].groupby(who).sum()
    order = np.argsort(-sums.abs().to_numpy(), kind="stable")
    return [(str(sums.index[place]), float(sums.iloc[place])) for place in order]


def _of_single_runs(means: tuple[float, float], least: float, by_how_much: str) -> Verdict:
    if not math.isfinite(least):
        text = (
            f"{by_how_much}. With one run each and few tasks, it is unknown how much of this is "
            "chance."
        )
        return Verdict("cannot tell", False, means, math.nan, text)
    cannot = (
        f"one run each: differences below {format_share(least)} cannot be distinguished from chance"
    )
    if abs(means[1] / means[0] - 1) < least:
        text = f"No certain difference: {by_how_much} as observed; {cannot}."
        return Verdict("no difference", False, means, math.nan, text)
    kind: Kind = "slower" if means[1] > means[0] else "faster"
    text = f"{by_how_much} as observed; {cannot}, and single runs do not show how much runs vary."
    return Verdict(kind, False, means, math.nan, text)


def least_of_single_runs(before: ComparedRun, after: ComparedRun) -> float:
    """Return the minimum difference that can be detected if there is one run per group."""
    # The spread within each run shows how much runs vary by chance.
    within = _WITHIN * math.hypot(*(relative_spread(run.trace) for run in (before, after)))
    return max(within, LEAST_OF_SINGLE_RUNS)


def _refusal(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> str:
    """Return the reason why wall times cannot be compared, or "" if they can."""
    both = [run.name for run in before if any(run.is_same(other) for other in after)]
    if both:
        of = "The same run" if len(before) == len(after) == 1 else f"{both[0]}, the same run,"
        return f"{of} is on both sides, so there is nothing to compare."
    for name, side in (("before", before), ("after", after)):
        for run in side:
            if not run.is_complete:
                faults = " and ".join(run.faults) or "has no wall time"
                return f"{run.name} ({name}) {faults}, so its wall time cannot be compared."
    return ""


def p_in_words(p: float) -> str:
    """Return a p-value as text."""
    return "< 0.001" if p < 0.001 else f"< {CERTAIN}" if p < CERTAIN else f"= {p:.2g}"


#: Maximum number of items in a sentence. Then minimum fraction of the difference for an item.
_MOST, _LEAST_SHARE = 3, 0.1
_THAN_BEFORE = {"slower": "longer", "faster": "less time"}
#: Name of a fact that differs between any two runs.
_VARIES = "Bytes moved between workers"
#: Text about unchanged functions on the critical path.
_OTHERS = (
    "other functions, whose tasks did not certainly change in number or duration (which of them "
    "are on the path varies)"
)
#: Category of time that shows interference of other programs. Then minimum fraction of the
#: difference at which it is mentioned.
_CORES, _MOSTLY = "Waiting for CPU", 0.5


def in_words(
    verdict: Verdict, surroundings: pd.DataFrame, functions: pd.DataFrame, path: pd.DataFrame
) -> list[str]:
    """Return sentences about the verdict, the surroundings, the functions and the critical path."""
    if verdict.kind == "cannot tell":
        return [verdict.text]
    causes = [_functions(functions), _around(surroundings)]
    if verdict.kind == "no difference" or (surroundings["Could explain it"] == "yes").any():
        causes.reverse()
    sentences = [verdict.text, *causes]
    if verdict.kind != "no difference":
        sentences.append(_path(verdict, functions, path))
    return [*filter(None, sentences), *filter(None, [_cores(verdict, path)])]


def others_in_words(common: float) -> str:
    """Return a caution that the groups seem to be runs of different pipelines.

    `common` is the fraction of the time in functions that both groups have.
    """
    return (
        "These seem to be different pipelines, so their wall times can hardly be compared: "
        f"common functions make up {format_share(common)} of the time."
    )


def notes_in_words(
    runs: Sequence[ComparedRun], left_out: Sequence[ComparedRun], evidence: Evidence
) -> list[str]:
    """Return caveats about the runs, and about how they were compared."""
    notes = []
    for run in runs:
        if run.faults:
            words = ", so it was left out" if any(run is other for other in left_out) else ""
            notes.append(f"{run.name} {', and '.join(run.faults)}{words}.")
    if not evidence.scheduler:
        notes.append(
            "A run has no file of the scheduler, so waits for the client and waits for the "
            "scheduler are combined."
        )
    return notes


def _around(surroundings: pd.DataFrame) -> str:
    """Return a sentence about the surroundings that differ between the groups, or an empty text."""
    words = "Differences around the runs"
    rows = surroundings[surroundings["What"] != _VARIES]
    # There is a change to explain, so other differences are not named.
    if (surroundings["Could explain it"] != "").any():
        words, rows = "Differences that could explain it", rows[rows["Could explain it"] == "yes"]
    columns = rows[["What", "Before", "After"]].head(_MOST)
    named = [f"{what} {old} → {new}" for what, old, new in columns.itertuples(index=False)]
    return f"{words}: {', '.join(named)}." if named else ""


def _functions(functions: pd.DataFrame) -> str:
    rows = functions[functions["Changed"] != UNCERTAIN].head(_MOST)
    named = [
        f"{name} takes {format_share(abs(change) / 100)} {_THAN_BEFORE[changed]}"
        for name, change, changed in rows[["Function", "Change (%)", "Changed"]].to_numpy()
    ]
    return f"Median durations of tasks: {', '.join(named)}." if named else ""


def _path(verdict: Verdict, functions: pd.DataFrame, path: pd.DataFrame) -> str:
    """Return a sentence about causes of the difference on the critical path, or an empty text."""
    difference = abs(verdict.difference)
    # If all threads are busy, it is chance which of several equally long tasks are on the path. So
    # a function is only named if its tasks in the full run changed in duration or in number.
    same = (functions["Changed"] == UNCERTAIN) & (functions["Tasks"] == "same")
    unchanged = set(functions.loc[same, "Function"])
    sums = contributions(path)
    by_chance = sum(seconds for what, seconds in sums if what in unchanged)
    shown = [part for part in sums if part[0] not in unchanged][:_MOST]
    named = [
        f"{what} {signed(seconds)}"
        for what, seconds in (*shown, (_OTHERS, by_chance))
        if abs(seconds) >= _LEAST_SHARE * difference
    ]
    return f"On the critical path: {', '.join(named)}." if named else ""


def _cores(verdict: Verdict, path: pd.DataFrame) -> str:
    """Return a sentence if most of the difference is due to CPU wait, or an empty text."""
    difference = verdict.difference
    waited = float(path.loc[path["Class"] == _CORES, "Difference (s)"].sum())
    if not math.isfinite(difference) or difference == 0 or waited / difference < _MOSTLY:
        return ""
    # The functions themselves are not the cause.
    return (
        f"Waiting for CPU accounts for {signed(waited)} of it. One side had other programs on "
        "the host, or more threads than cores."
    )


def signed(seconds: float) -> str:
    """Return a difference in seconds as text with a sign."""
    sign = "−" if seconds < 0 else "+"  # noqa: RUF001
    return f"{sign}{format_duration(abs(seconds))}"
