"""Findings as paragraphs: severity, seconds at stake, finding, suggestion and evidence."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import click

from dasfprof.report.terminal.output import echo, terminal_width
from dasfprof.text import clean, elide, format_duration

if TYPE_CHECKING:
    import pandas as pd

_COLOURS = {"high": "red", "medium": "yellow", "low": "cyan"}
#: Severities whose evidence is printed; for the others it is in the table only.
_PROVEN = ("high", "medium")
#: A finding that names a key of a megabyte does not fill the terminal with it.
_LONGEST = 700
#: Columns of the severity and of the seconds, before the text.
_MARGIN = 22
#: Lines beyond are hard to read.
_WIDEST = 110


def print_findings(findings: pd.DataFrame, rows: int, *, err: bool = False) -> None:
    """Print the first findings, wrapped to the terminal."""
    shown = f" (first {rows} of {len(findings)})" if len(findings) > rows else ""
    echo(f"\n{click.style('Findings', bold=True)}{shown}", err=err)
    if not len(findings):
        echo("  None of the known faults was found.", err=err)
    for finding in findings.head(rows).to_dict("records"):
        _print_finding(finding, err=err)


def _print_finding(finding: dict[Any, Any], *, err: bool) -> None:
    severity = clean(finding["Severity"])
    seconds = finding["Seconds at stake (s)"]
    at_stake = "" if math.isnan(seconds) else format_duration(seconds)
    margin = f"  {severity:<7}{at_stake:>11}  "
    head, *rest = _paragraph(finding["Finding"], "")
    colour = _COLOURS.get(severity)
    echo(f"{click.style(margin, fg=colour)}{click.style(head, bold=True)}", err=err)
    for line in rest:
        echo(" " * _MARGIN + click.style(line, bold=True), err=err)
    for line in _paragraph(finding["Suggestion"], "→ "):
        echo(" " * _MARGIN + line, err=err)
    if severity in _PROVEN:
        for line in _paragraph(finding["Evidence"], "  "):
            echo(" " * _MARGIN + click.style(line, dim=True), err=err)


def _paragraph(text: object, lead: str) -> list[str]:
    """Wrap a text; lines after the first are indented as its first word is."""
    width = max(min(terminal_width(), _WIDEST) - _MARGIN, 20)
    lines = textwrap.wrap(
        elide(text, _LONGEST),
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
    )
    return lines or [lead]
