"""The findings of two sides: those that are new, gone, and the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from dasfprof.analysis.comparison.matching import Matching
from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.diagnosis.findings import SEVERITIES

#: A rule and the function that it speaks of, if one.
_What = tuple[str, str | None]
_STATUSES = ("new", "gone", "same", "now and then")


def compare_findings(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun], matching: Matching
) -> pd.DataFrame:
    """List the findings of both sides; see `RunComparison.findings`."""
    first = _by_what(before, matching.label_before)
    second = _by_what(after, matching.label_after)
    rows = []
    for what in dict.fromkeys([*second, *first]):
        old, new = first.get(what, []), second.get(what, [])
        status = _status(len(old) / len(before), len(new) / len(after))
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


def _status(before: float, after: float) -> str:
    """Name what became of a finding, by the shares of the runs that have it."""
    had, has = before > 0.5, after > 0.5
    if had != has:
        return "new" if has else "gone"
    return "same" if had else "now and then"
