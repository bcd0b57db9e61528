"""A comparison of runs in a terminal: the verdict, and what made the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dasfprof.report.terminal.output import echo, terminal_width
from dasfprof.report.terminal.paragraphs import Part, heading, print_entry, print_notes, say
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import clean, count_of, elide, format_duration

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis.comparison import RunComparison

_COLOURS = {"faster": "green", "slower": "red"}
#: Columns to leave out first where they do not fit.
_EXPENDABLE = (
    "Highest Memory Before (MB)",
    "Highest Memory After (MB)",
    "Throughput Before (MB/s)",
    "Throughput After (MB/s)",
    "Median Result Before (MB)",
    "Median Result After (MB)",
    "95th Percentile Before (s)",
    "95th Percentile After (s)",
    "Task Runs Before",
    "Task Runs After",
)
_LONGEST = 400


def print_comparison(comparison: RunComparison, rows: int) -> None:
    """Print a comparison; `rows`: how many rows of each table."""
    _print_verdict(comparison)
    if comparison.verdict.kind != "cannot tell":
        before, after = map(format_duration, comparison.verdict.means)
        title = f"From {before} to {after}, along the critical path"
        _print_waterfall(title, comparison.waterfall(), rows)
        threads = comparison.thread_time()
        sums = (float(threads[f"{side} (s)"].sum()) for side in ("Before", "After"))
        first, last = map(format_duration, sums)
        _print_waterfall(f"From {first} to {last} of all threads", threads, rows)
    functions = comparison.functions
    if len(functions):
        _heading("Functions", len(functions), rows)
        echo(format_table(functions.head(rows), terminal_width(), expendable=_EXPENDABLE))
    _print_findings(comparison.findings, rows)
    around = comparison.surroundings
    heading("What differs around them", "" if len(around) else ": nothing", apart=True)
    if len(around):
        echo(format_table(around, terminal_width()))
    print_notes(comparison.notes)


def _print_verdict(comparison: RunComparison) -> None:
    sides = (comparison.runs_before, comparison.runs_after)
    names = [
        elide(side[0].name, 60)
        if len(side) == 1
        else f"{elide(side[0].name, 60)} and {count_of(len(side) - 1, 'more run')}"
        for side in sides
    ]
    heading(" → ".join(names))
    kind = comparison.verdict.kind if comparison.same_pipeline else ""
    style = _COLOURS.get(kind, "yellow")
    first, *more = (clean(sentence) for sentence in comparison.sentences)
    parts = [Part(first, f"bold {style}"), *(Part(sentence) for sentence in more)]
    print_entry("  ", None, parts)


def _print_waterfall(title: str, table: pd.DataFrame, rows: int) -> None:
    """Print the largest differences, and the sum of the rest: the lines sum to the whole."""
    import pandas as pd

    heading(title, apart=True)
    shown = table.drop(columns="Meaning")
    if len(shown) > rows:
        seconds = ["Before (s)", "After (s)", "Difference (s)"]
        rest = shown.iloc[rows:]
        left = {**dict.fromkeys(shown.columns, ""), "Class": f"{len(rest)} more"}
        last = pd.DataFrame([left | rest[seconds].sum().to_dict()])
        shown = pd.concat([shown.head(rows), last], ignore_index=True)
    echo(format_table(shown, terminal_width()))


def _print_findings(findings: pd.DataFrame, rows: int) -> None:
    changed = findings[findings["Status"].isin(["new", "gone"])]
    same = int((findings["Status"] == "same").sum())
    _heading("Findings that are new or gone", len(changed), rows)
    for row in changed.head(rows).to_dict("records"):
        margin = f"  {row['Status']:<5}{clean(row['Severity']):<8}"
        style = "red" if row["Status"] == "new" else "green"
        print_entry(margin, style, [Part(elide(row["Finding"], _LONGEST))])
    if same or not len(changed):
        say(f"  {count_of(same, 'finding')} on both sides." if same else "  None.")


def _heading(title: str, count: int, rows: int) -> None:
    shown = f" (first {rows} of {count})" if count > rows else ""
    heading(title, shown, apart=True)
