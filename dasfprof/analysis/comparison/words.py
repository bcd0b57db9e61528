"""A comparison in a few sentences: the verdict, and what made the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from dasfprof.analysis.comparison.functions import UNCERTAIN
from dasfprof.analysis.comparison.parts import Evidence
from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.comparison.verdict import Verdict, contributions
from dasfprof.text import format_duration, format_share

#: Most things that a sentence names, and the least share of the difference that each makes.
_MOST, _LEAST_SHARE = 3, 0.1
_THAN_BEFORE = {"slower": "longer", "faster": "less time"}
#: What differs between any two runs.
_VARIES = "Bytes moved between workers"
#: The class of time that tells of other programs, and the share of a difference to speak of it.
_CORES, _MOSTLY = "Waiting for a core", 0.5


def in_words(
    verdict: Verdict, surroundings: pd.DataFrame, functions: pd.DataFrame, path: pd.DataFrame
) -> list[str]:
    """Write a sentence each on the verdict, what differs around, the functions, and the path.

    Of the path functions are named with all that they do, waits by their class.
    """
    if verdict.kind == "cannot tell":
        return [verdict.text]
    found = [verdict.text, _around(surroundings), _functions(functions)]
    if verdict.kind != "no difference":
        found.append(_path(verdict, path))
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


def _path(verdict: Verdict, path: pd.DataFrame) -> str:
    whole = abs(verdict.difference)
    named = [
        f"{what} {signed(seconds)}"
        for what, seconds in contributions(path)[:_MOST]
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
        f"Waiting for a core makes {signed(waited)} of it: other programs were on the host, or "
        "more threads than cores, on one side more than on the other."
    )


def signed(seconds: float) -> str:
    """Write a difference of seconds with its sign."""
    sign = "−" if seconds < 0 else "+"  # noqa: RUF001
    return f"{sign}{format_duration(abs(seconds))}"
