"""Findings as paragraphs: severity, seconds at stake, finding, suggestion and evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dasfprof.report.terminal.output import echo
from dasfprof.report.terminal.paragraphs import Part, heading, print_entry
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    import pandas as pd

_COLOURS = {"high": "red", "medium": "yellow", "low": "cyan"}
#: Severities whose evidence is printed; for the others it is in the table only.
_PROVEN = ("high", "medium")
#: A finding that names a key of a megabyte does not fill the terminal with it.
_LONGEST = 700
#: What stands before a finding that the one above it brings about.
_BENEATH = "└ "
_NONE = "None of the known faults was found."


def print_findings(
    findings: pd.DataFrame, rows: int, *, none: str = _NONE, err: bool = False
) -> None:
    """Print the first findings, wrapped to the terminal; `none`: what to print without any."""
    shown = f" (first {rows} of {len(findings)})" if len(findings) > rows else ""
    heading("Findings", shown, err=err, apart=True)
    if not len(findings):
        echo(f"  {none}", err=err)
    for finding in findings.head(rows).to_dict("records"):
        _print_finding(finding, err=err)


def _print_finding(finding: dict[Any, Any], *, err: bool) -> None:
    severity = clean(finding["Severity"])
    seconds = finding["Seconds at stake (s)"]
    at_stake = "" if math.isnan(seconds) else format_duration(seconds)
    margin = f"  {severity:<7}{at_stake:>11}  "
    symptom = finding.get("Cause") is not None
    parts = [
        Part(elide(finding["Finding"], _LONGEST), "bold", lead=_BENEATH if symptom else ""),
        Part(elide(finding["Suggestion"], _LONGEST), lead="→ "),
    ]
    if severity in _PROVEN:
        parts.append(Part(elide(finding["Evidence"], _LONGEST), "dim", lead="  "))
    print_entry(margin, _COLOURS.get(severity), parts, err=err)
