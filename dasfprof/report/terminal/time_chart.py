"""Where the time of all threads went, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.table import Table

from dasfprof.report.terminal.console import console
from dasfprof.report.terminal.output import echo
from dasfprof.report.terminal.paragraphs import heading
from dasfprof.text import elide

if TYPE_CHECKING:
    import pandas as pd

#: Columns of a class's name, of its figures, of the longest bar, and that its meaning needs.
_NAME, _FIGURES, _BAR, _MEANING = 24, 24, 24, 30


def print_time(accounting: pd.DataFrame, *, err: bool = False) -> None:
    """Print each class of thread time with a bar for its share; what each means, if there is room.

    Parameters
    ----------
    accounting
        What `TraceAnalyser.time_accounting` gives for the cluster.
    err
        Whether to print on standard error.
    """
    total = accounting["Thread Time (s)"].sum()
    heading("Where the time of all threads went", f", {total:.4g} s", err=err, apart=True)
    if not len(accounting):
        echo("  No thread of a worker is known.", err=err)
    target = console(err=err)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=_NAME - 1, no_wrap=True)
    for _ in ("seconds", "share"):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(width=max(min(target.width - _NAME - _FIGURES, _BAR), 1))
    # With a blank behind each column. A meaning that is wider would take the place of figures.
    room = target.width - _NAME - _FIGURES - _BAR - 2
    if room > _MEANING:
        table.add_column(no_wrap=True, style="dim")
    for row in accounting.to_dict("records"):
        meaning = [elide(row["Meaning"], room)] if room > _MEANING else []
        table.add_row(
            f"  {elide(row['Class'], _NAME - 3)}",
            f"{row['Thread Time (s)']:.3f} s",
            f"{row['Share (%)']:.1f} %",
            Bar(100, 0, row["Share (%)"], color="green" if row["Busy"] else "yellow"),
            *meaning,
        )
    target.print(table)
