"""A comparison in words: the verdict, what made the difference, findings that are new or gone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from dasfprof.analysis.comparison.functions import UNCERTAIN
from dasfprof.analysis.comparison.matching import Matching
from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.comparison.verdict import Verdict, contributions
from dasfprof.analysis.comparison.waterfall import Evidence
from dasfprof.analysis.diagnosis.registry import SEVERITIES
from dasfprof.text import format_duration, format_share

#: A rule and the function that it speaks of, if one.
_What = tuple[str, str | None]
_STATUSES = ("new", "gone", "same", "now and then", "not clear")


def compare_findings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], matching: Matching
) -> pd.DataFrame:
    """List the findings of both sides, of all their runs; see `RunComparison.findings`."""
    first = _by_what(before, matching.label_before)
    second = _by_what(after, matching.label_after)
    rows = []
    for what in dict.fromkeys([*second, *first]):
        old, new = first.get(what, []), second.get(what, [])
        status = _status(_share(before, old), _share(after, new))
        shown = (new or old)[-1] if status != "gone" else old[-1]
        rows.append(
            {
                "Status": status,
                "Severity": shown["Severity"],
                "Finding": shown["Finding"],
                "Seconds at stake (s)": float(shown["Seconds at stake (s)"]),
                "Runs Before": f"{len(old)} of {len(before)}",
                "Runs After": f"{len(new)} of {len(after)}",
                "Rule": what[0],
                "Function": what[1],
            }
        )
    rows.sort(key=lambda row: (_STATUSES.index(row["Status"]), SEVERITIES.index(row["Severity"])))
    columns = ("Status", "Severity", "Finding", "Seconds at stake (s)", "Runs Before")
    return pd.DataFrame(rows, columns=[*columns, "Runs After", "Rule", "Function"])


def _by_what(
    runs: Sequence[ComparedRun], label: Callable[[str], str]
) -> dict[_What, list[dict[str, Any]]]:
    """Return what each run finds, the gravest of each kind."""
    found: dict[_What, list[dict[str, Any]]] = {}
    for run in runs:
        seen: dict[_What, dict[str, Any]] = {}
        for row in run.findings.to_dict("records"):
            function = row["Function"]
            name = label(function) if isinstance(function, str) else None
            seen.setdefault((str(row["Rule"]), name), {str(k): v for k, v in row.items()})
        for what, finding in seen.items():
            found.setdefault(what, []).append(finding)
    return found


def _share(runs: Sequence[ComparedRun], found: Sequence[object]) -> float:
    """Return the share of a side's runs that have a finding; NaN: unknown.

    One that did not end and has it not does not count: it might have had it later.
    """
    counted = max(sum(run.is_whole for run in runs), len(found))
    return len(found) / counted if counted else math.nan


def _status(before: float, after: float) -> str:
    """Name what became of a finding, by the shares of the runs that have it."""
    if math.isnan(before) or math.isnan(after):
        return "not clear"
    had, has = before > 0.5, after > 0.5
    if had != has:
        return "new" if has else "gone"
    return "same" if had else "now and then"


#: Most things that a sentence names, and the least share of the difference that each makes.
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
_CORES, _MOSTLY = "Waiting for a core", 0.5


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
        f"Waiting for a core makes {signed(waited)} of it: other programs were on the host, or "
        "more threads than cores, on one side more than on the other."
    )


def signed(seconds: float) -> str:
    """Write a difference of seconds with its sign."""
    sign = "−" if seconds < 0 else "+"  # noqa: RUF001
    return f"{sign}{format_duration(abs(seconds))}"
