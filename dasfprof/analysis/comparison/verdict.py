"""The verdict on two sides: whether one is faster, how sure that is, and by what, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.functions import UNCERTAIN
from dasfprof.analysis.comparison.runs import ComparedRun, least_of_others, other_walls
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
#: Minimum number of task runs of a function to estimate their spread.
_ENOUGH = 4
#: Number of parts of a run whose speeds are compared, and minimum number of task runs in each.
_PARTS, _ENOUGH_IN_PART = 8, 4


def relative_spread(trace: Run) -> float:
    """Estimate the standard deviation of a run's wall time, as a share of it; NaN: unknown.

    Two things vary. Tasks of the same function differ: those of the critical path sum to the wall
    time, and so do their variances. And the machine's speed changes: as much between runs, it
    is supposed, as between the eighths of this one.
    """
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
    by_tasks = float(np.sqrt((deviation[groups.codes[on_path]] ** 2).sum())) / wall
    relative = seconds[known] / groups.median(seconds)[groups.codes[known]]
    by_speed = _spread_of_speed(tasks["start"].to_numpy(dtype=float)[known], relative)
    segments = path_segments(trace)
    ran = segments.length[segments.kind == SegmentKind.COMPUTE].sum() / segments.length.sum()
    return float(np.hypot(by_tasks, by_speed * ran))


def _spread_of_speed(start: Array, relative: Array) -> float:
    """Return by how much parts of a run differ in the time that a usual task takes.

    Less what medians of so few tasks differ by without any change of speed: 1.25 standard errors.
    """
    edges = np.linspace(start.min(), start.max(), _PARTS + 1)[1:-1]
    parts = Groups(np.searchsorted(edges, start, side="right"), _PARTS)
    enough = parts.sizes >= _ENOUGH_IN_PART
    speeds, sizes = parts.median(relative)[enough], parts.sizes[enough]
    if np.count_nonzero(np.isfinite(speeds)) < 2:
        return 0.0
    of_tasks = _TO_DEVIATION * parts.deviation(relative)[enough]
    by_chance = float(np.mean((1.25 * of_tasks) ** 2 / sizes))
    return float(np.sqrt(max(float(speeds.var(ddof=1)) - by_chance, 0.0)))


Kind = Literal["faster", "slower", "no difference", "cannot tell"]

#: Minimum difference (fraction) that is reported of one run each: runs of the same program on the
#: same machine differ by a few percent, which no single run shows.
LEAST_OF_ONE = 0.05
#: Standard deviations of the difference of two runs within which 99 of 100 lie.
_WITHIN = 2.58


@dataclass(frozen=True)
class Verdict:
    """Whether the side after is faster or slower than the side before."""

    kind: Kind
    #: Whether chance can be ruled out: p < 0.01, of several runs on each side.
    certain: bool
    #: Means of the sides' wall times, in seconds; NaN: unknown.
    means: tuple[float, float]
    #: Of the difference; NaN where no test can be made.
    p: float
    #: In a sentence: by how much, how sure that is, and of how many runs.
    text: str

    @property
    def change(self) -> float:
        """The difference as a share of the time before: below 0 if it is faster."""
        before, after = self.means
        return after / before - 1 if before > 0 else math.nan

    @property
    def difference(self) -> float:
        """The seconds that the side after took longer."""
        return self.means[1] - self.means[0]


class Least(NamedTuple):
    """Minimum difference of two single runs that is reported, and how it was estimated."""

    #: As a fraction, or NaN if it is unknown.
    share: float
    #: Number of other runs in the history, or 0 if there are too few.
    others: int


def judge(before: Sequence[ComparedRun], after: Sequence[ComparedRun], least: Least) -> Verdict:
    """Compare the wall times of two sides; `least` counts for one run each."""
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
        return _of_one_each(means, least, by_how_much)
    p = p_value(first, second)
    runs = f"{count_of(len(first), 'run')} {'each' if len(first) == len(second) else 'before'}"
    runs += f", {len(second)} after" if len(first) != len(second) else ""
    test = f"{runs}, p {p_in_words(p)} ({name_of_test(len(first), len(second))})"
    if p < CERTAIN:
        kind: Kind = "slower" if change > 0 else "faster"
        if min(len(first), len(second)) == 1:  # which may be one of the few that are far off
            text = f"{by_how_much}, likely, not certain: {test}."
            return Verdict(kind, False, means, p, text)
        return Verdict(kind, True, means, p, f"{by_how_much}, certain: {test}.")
    text = f"No certain difference: {by_how_much} as seen; {test}."
    return Verdict("no difference", False, means, p, text)


def walls(side: Sequence[ComparedRun]) -> Array:
    """Return the wall times of a side's runs."""
    return np.array([run.seconds for run in side], dtype=float)


def contributions(path: pd.DataFrame) -> list[tuple[str, float]]:
    """Sum a waterfall up by function that ran, and by class of wait; the largest first."""
    ran = path["Class"].isin(RUNNING)
    who = path["Function"].where(ran, path["Class"].str.lower())
    sums = path["Difference (s)"].groupby(who).sum()
    order = np.argsort(-sums.abs().to_numpy(), kind="stable")
    return [(str(sums.index[place]), float(sums.iloc[place])) for place in order]


def _of_one_each(means: tuple[float, float], least: Least, by_how_much: str) -> Verdict:
    limit, others = least
    if not math.isfinite(limit):
        text = f"{by_how_much}; one run each, of too few tasks to tell how much chance makes."
        return Verdict("cannot tell", False, means, math.nan, text)
    as_others = f", as {others} other runs of it vary" if others else ""
    cannot = f"one run each: cannot tell below {format_share(limit)}{as_others}"
    if abs(means[1] / means[0] - 1) < limit:
        text = f"No certain difference: {by_how_much} as seen; {cannot}."
        return Verdict("no difference", False, means, math.nan, text)
    kind: Kind = "slower" if means[1] > means[0] else "faster"
    text = f"{by_how_much}, likely, not certain: {cannot}."
    if not others:
        text = f"{by_how_much} as seen; {cannot}, and by how much runs vary no single one shows."
    return Verdict(kind, False, means, math.nan, text)


def least_of_one(before: ComparedRun, after: ComparedRun) -> Least:
    """Return the least difference that one run each can tell.

    By what other runs of it vary by, where the history has enough; no less than the spread within
    the two runs lets expect, and, without others, than `LEAST_OF_ONE`.
    """
    within = _WITHIN * math.hypot(*(relative_spread(run.trace) for run in (before, after)))
    others = other_walls(before, after)
    if len(others):
        return Least(float(np.nanmax([within, least_of_others(others, CERTAIN)])), len(others))
    return Least(max(within, LEAST_OF_ONE), 0)


def _refusal(before: Sequence[ComparedRun], after: Sequence[ComparedRun]) -> str:
    """Say why wall times cannot be compared; empty if they can."""
    both = [run.name for run in before if any(run.is_same(other) for other in after)]
    if both:
        of = "The same run" if len(before) == len(after) == 1 else f"{both[0]}, the same run,"
        return f"{of} is on both sides: there is nothing to tell."
    for name, side in (("before", before), ("after", after)):
        for run in side:
            if not run.is_whole:
                faults = " and ".join(run.faults) or "has no wall time"
                return f"{run.name} ({name}) {faults}: its wall time cannot be compared."
    return ""


def p_in_words(p: float) -> str:
    """Write a probability."""
    return "< 0.001" if p < 0.001 else f"< {CERTAIN}" if p < CERTAIN else f"= {p:.2g}"


# --- A comparison in words: the verdict, what made the difference, what to know of the runs -------

#: Maximum number of things in a sentence, and minimum fraction of the difference of each.
_MOST, _LEAST_SHARE = 3, 0.1
_THAN_BEFORE = {"slower": "longer", "faster": "less time"}
#: What differs between any two runs.
_VARIES = "Bytes moved between workers"
#: What is said of functions on the critical path that did not change.
_OTHERS = (
    "other functions, whose tasks are as many and for all that is certain as long (which of them "
    "lie on it varies)"
)
#: The class of time that tells of other programs, and the share of a difference to speak of it.
_CORES, _MOSTLY = "Waiting for CPU", 0.5


def in_words(
    verdict: Verdict, surroundings: pd.DataFrame, functions: pd.DataFrame, path: pd.DataFrame
) -> list[str]:
    """Write a sentence each on the verdict, what differs around, the functions, and the path.

    Of the path functions are named with all that they do, waits by their class.
    """
    if verdict.kind == "cannot tell":
        return [verdict.text]
    causes = [_functions(functions), _around(surroundings)]
    if verdict.kind == "no difference" or (surroundings["Could explain it"] == "yes").any():
        causes.reverse()
    found = [verdict.text, *causes]
    if verdict.kind != "no difference":
        found.append(_path(verdict, functions, path))
    return [*filter(None, found), *filter(None, [_cores(verdict, path)])]


def others_in_words(common: float) -> str:
    """Say that two pipelines seem to be different; `common`: their time in common functions."""
    return (
        "These seem to be different pipelines, so that the wall time says little: "
        f"functions that both have make up {format_share(common)} of the time."
    )


def notes_in_words(
    runs: Sequence[ComparedRun], left_out: Sequence[ComparedRun], evidence: Evidence, renamed: int
) -> list[str]:
    """Write what is to be known of the runs, and of how they were compared."""
    found = []
    for run in runs:
        if run.faults:
            words = ": it is left out" if any(run is other for other in left_out) else ""
            found.append(f"{run.name} {', and '.join(run.faults)}{words}.")
    if not evidence.scheduler:
        found.append(
            "A run has no scheduler's file, so that waits for the client and the "
            "scheduler are not told apart."
        )
    if renamed:
        taken = "function is" if renamed == 1 else "functions are"
        found.append(f"{renamed} {taken} taken to be renamed, by the place in the graph.")
    return found


def _around(surroundings: pd.DataFrame) -> str:
    """Name what could explain the difference; what differs at all, if there is none to explain."""
    told = surroundings["Could explain it"] != ""
    words = "What differs and could explain it" if told.any() else "What differs around the runs"
    own = surroundings[surroundings["What"] != _VARIES]
    if told.any():
        own = own[own["Could explain it"] == "yes"]
    named = [
        f"{what} {before} → {after}"
        for what, before, after in zip(own["What"], own["Before"], own["After"], strict=True)
    ]
    return f"{words}: {', '.join(named[:_MOST])}." if named else ""


def _functions(functions: pd.DataFrame) -> str:
    own = functions[functions["Changed"] != UNCERTAIN].head(_MOST)
    named = [
        f"{name} takes {format_share(abs(change) / 100)} {_THAN_BEFORE[changed]}"
        for name, change, changed in zip(
            own["Function"], own["Change (%)"], own["Changed"], strict=True
        )
    ]
    return f"By the median of their tasks: {', '.join(named)}." if named else ""


def _path(verdict: Verdict, functions: pd.DataFrame, path: pd.DataFrame) -> str:
    """Name what makes the difference on the critical path: waits, and functions that changed.

    Where all threads are busy, which of equally long tasks lie on it is chance: a function is named
    if its tasks, of the whole run, take another time or are more or fewer.
    """
    whole = abs(verdict.difference)
    same = (functions["Changed"] == UNCERTAIN) & (functions["Tasks"] == "same")
    unchanged = set(functions.loc[same, "Function"])
    sums = contributions(path)
    by_chance = sum(seconds for what, seconds in sums if what in unchanged)
    told = [*(part for part in sums if part[0] not in unchanged)][:_MOST]
    named = [
        f"{what} {signed(seconds)}"
        for what, seconds in (*told, (_OTHERS, by_chance))
        if abs(seconds) >= _LEAST_SHARE * whole
    ]
    return f"On the critical path: {', '.join(named)}." if named else ""


def _cores(verdict: Verdict, path: pd.DataFrame) -> str:
    """Say so where functions took longer because they got no core: that is not their own doing."""
    whole = verdict.difference
    waited = float(path.loc[path["Class"] == _CORES, "Difference (s)"].sum())
    if not math.isfinite(whole) or whole == 0 or waited / whole < _MOSTLY:
        return ""
    return (
        f"Waiting for CPU makes {signed(waited)} of it: other programs were on the host, or "
        "more threads than cores, on one side more than on the other."
    )


def signed(seconds: float) -> str:
    """Write a difference of seconds with its sign."""
    sign = "−" if seconds < 0 else "+"  # noqa: RUF001
    return f"{sign}{format_duration(abs(seconds))}"
