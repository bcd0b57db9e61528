"""The answers that commands print: the findings first, then tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dasfprof.report.terminal.findings import print_findings
from dasfprof.report.terminal.output import echo, print_notes, terminal_width
from dasfprof.report.terminal.tables import format_table
from dasfprof.report.terminal.time_chart import print_time

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Trace, TraceAnalyser

DEFAULT_ROWS = 10


@dataclass(frozen=True)
class Table:
    """One question to the analyser."""

    title: str
    method: str
    #: Name of its CSV file.
    file_name: str
    #: Columns that are left out first on a narrow terminal.
    expendable: tuple[str, ...] = ()

    def ask(self, analyser: TraceAnalyser) -> pd.DataFrame:
        """Return the answer."""
        frame: pd.DataFrame = getattr(analyser, self.method)()
        return frame


TABLES = {
    "findings": Table("Findings", "diagnose", "findings.csv"),
    "time": Table("Where the time of all threads went", "time_accounting", "time_accounting.csv"),
    "step": Table(
        "Steps of the pipeline",
        "per_step_bottleneck",
        "step_bottleneck.csv",
        ("Functions", "Workers", "Failed Tasks", "Mean Throughput (MB/s)", "Mean Data Size (MB)"),
    ),
    "function": Table(
        "Functions that took the most time, by worker",
        "per_function_bottleneck",
        "function_bottleneck.csv",
        ("Failed Tasks", "Mean Throughput (MB/s)", "Mean Data Size (MB)"),
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
    "events": Table("Events of user code", "own_events", "own_events.csv", ("Process", "Thread")),
}


def tables_of(trace: Trace) -> list[str]:
    """Return the names of the tables that have rows: without steps, no table of steps."""
    if len(trace.events) and not len(trace.tasks):
        return ["events"]
    silent = set() if trace.tasks["step"].notna().any() else {"step"}
    silent |= set() if len(trace.events) else {"events"}
    return [name for name in TABLES if name not in silent]


def print_answers(
    analyser: TraceAnalyser, rows: int, *, names: Iterable[str] = (), err: bool = False
) -> dict[str, pd.DataFrame]:
    """Print answers one by one, then notes on missing data; return the whole tables.

    Parameters
    ----------
    analyser
        The run.
    rows
        How many rows to print of each.
    names
        Which of `TABLES`; none: those that `tables_of` gives.
    err
        Whether to print on standard error.
    """
    answers = {}
    for name in names or tables_of(analyser.trace):
        table = TABLES[name]
        answers[name] = frame = table.ask(analyser)
        if name == "findings":
            print_findings(frame, rows, err=err)
        elif name == "time":
            print_time(frame, err=err)
        else:
            _print_table(table, frame, rows, err=err)
    print_notes([note.text for note in analyser.trace.notes], err=err)
    return answers


def _print_table(table: Table, frame: pd.DataFrame, rows: int, *, err: bool) -> None:
    """Print a table's first rows, as wide as the terminal."""
    shown = f" (first {rows} of {len(frame)} rows)" if len(frame) > rows else ""
    echo(f"\n{click.style(table.title, bold=True)}{shown}", err=err)
    if len(frame):
        text = format_table(frame.head(rows), terminal_width(), expendable=table.expendable)
        echo(text, err=err)
    else:
        echo("No rows: no finished task was recorded.", err=err)
