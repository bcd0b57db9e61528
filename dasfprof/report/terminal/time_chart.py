"""Where the time of all threads went, as bars."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from dasfprof.report.terminal.output import echo, terminal_width
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
    echo(
        f"\n{click.style('Where the time of all threads went', bold=True)}, {total:.4g} s", err=err
    )
    if not len(accounting):
        echo("  No thread of a worker is known.", err=err)
    width = max(min(terminal_width() - _NAME - _FIGURES, _BAR), 1)
    room = terminal_width() - _NAME - _FIGURES - _BAR - 1
    for row in accounting.to_dict("records"):
        halves = int(row["Share (%)"] / 100 * width * 2)
        bar = "█" * (halves // 2) + "▌" * (halves % 2)
        meaning = textwrap.shorten(row["Meaning"], room, placeholder="…") if room > _MEANING else ""
        shown = _coloured(bar, fg="green" if row["Busy"] else "yellow")
        gap = " " * (width - len(bar) + 1)
        name = f"  {elide(row['Class'], _NAME - 2)}"
        figures = f"{row['Thread Time (s)']:>12.3f} s {row['Share (%)']:>5.1f} %  "
        line = f"{name:<{_NAME}}{figures}{shown}{gap}{_coloured(meaning, dim=True)}"
        echo(line.rstrip(), err=err)


def _coloured(text: str, **style: Any) -> str:
    return click.style(text, **style) if text else ""
