"""The three tables as the commands show them, and how commands print."""

from __future__ import annotations

import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from dasfprof.report.text import clean, elide, format_table

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import TraceAnalyser
    from dasfprof.database import MultiEventDatabase

DEFAULT_ROWS = 10

_MAX_NOTE = 400

#: Signs that not every terminal has, and what stands for them there.
_PLAIN_SIGNS = str.maketrans({"─": "-", "…": "~", "·": "-"})


@dataclass(frozen=True)
class Table:
    """One question to the analyser."""

    title: str
    method: str
    #: Name of its CSV file.
    file_name: str
    #: Columns that a narrow terminal can do without.
    expendable: tuple[str, ...] = ()

    def ask(self, analyser: TraceAnalyser) -> pd.DataFrame:
        """Give the answer."""
        frame: pd.DataFrame = getattr(analyser, self.method)()
        return frame


TABLES = {
    "function": Table(
        "Functions that took the most time, by worker",
        "per_function_bottleneck",
        "function_bottleneck.csv",
        ("Failed Tasks",),
    ),
    "task": Table(
        "Tasks that took the most time",
        "per_task_bottleneck",
        "task_bottleneck.csv",
        ("Run ID", "Function", "State", "Start (s)"),
    ),
    "balance": Table(
        "Tasks in memory on each worker, second by second",
        "per_worker_task_balance",
        "task_balance.csv",
    ),
}


def open_source(source: str) -> MultiEventDatabase:
    """Open a run; what Python would warn of is printed as a note."""
    from dasfprof.database import open_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = open_run(source)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    return database


def print_table(table: Table, frame: pd.DataFrame, rows: int, *, err: bool = False) -> None:
    """Print a table's first rows, as wide as the terminal."""
    shown = f" (first {rows} of {len(frame)} rows)" if len(frame) > rows else ""
    echo(f"\n{click.style(table.title, bold=True)}{shown}", err=err)
    if len(frame):
        text = format_table(frame.head(rows), terminal_width(), expendable=table.expendable)
        echo(text, err=err)
    else:
        echo("No rows: no finished task was recorded.", err=err)


def print_notes(notes: Sequence[str], *, err: bool = False) -> None:
    """Print what evidence is missing, after an empty line."""
    for position, note in enumerate(notes):
        say(f"Note: {elide(note, _MAX_NOTE)}", err=err, apart=position == 0)


def say(text: str, *, err: bool = False, apart: bool = False) -> None:
    """Print a paragraph, wrapped; `apart` puts an empty line before it."""
    lines = textwrap.wrap(
        text, min(terminal_width(), 100), break_long_words=False, break_on_hyphens=False
    )
    echo("\n" * apart + "\n".join(lines), err=err)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print; signs that the stream's encoding lacks are replaced."""
    stream: Any = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN_SIGNS)
        text = plain.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(text, err=err)


def terminal_width() -> int:
    """Give the columns of the terminal, or of COLUMNS; 100 where the output is no terminal."""
    return shutil.get_terminal_size(fallback=(100, 24)).columns
