"""The answers that commands print: the findings first, then tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dasfprof.report.terminal.findings import print_findings
from dasfprof.report.terminal.output import echo, terminal_width
from dasfprof.report.terminal.paragraphs import heading, print_notes
from dasfprof.report.terminal.tables import format_table
from dasfprof.report.terminal.time_chart import print_time

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import Trace, TraceAnalyser
    from dasfprof.analysis.tables.questions import Question, Request

DEFAULT_ROWS = 10


def default_requests(trace: Trace) -> list[Request]:
    """Return what is asked of a run by default: what it has evidence for."""
    from dasfprof.analysis.tables import questions
    from dasfprof.analysis.tables.questions import Request

    found = questions.overview(trace)
    if len(trace.events) and not len(trace.tasks):
        found = [question for question in found if question.name == "own_events"]
    return [Request(question) for question in found]


def print_answers(
    analyser: TraceAnalyser, rows: int, *, requests: Iterable[Request] = (), err: bool = False
) -> dict[str, pd.DataFrame]:
    """Print answers one by one, then notes on missing data; return the whole tables.

    Parameters
    ----------
    analyser
        The run.
    rows
        How many rows to print of each.
    requests
        The questions. Default: those of `default_requests`.
    err
        Whether to print on standard error.
    """
    from dasfprof.report.run_summary import no_findings

    answers = {}
    for request in requests or default_requests(analyser.trace):
        question = request.question
        answers[request.file_stem] = frame = request.of(analyser)
        if question.name == "diagnose":
            print_findings(frame, rows, none=no_findings(analyser.trace), err=err)
        elif question.name == "time_accounting" and not request.arguments:
            print_time(frame, err=err)
        else:
            _print_table(question, frame, rows, err=err)
    print_notes([note.text for note in analyser.trace.notes], err=err)
    return answers


def _print_table(question: Question, frame: pd.DataFrame, rows: int, *, err: bool) -> None:
    """Print a table's first rows, as wide as the terminal."""
    shown = f" (first {rows} of {len(frame)} rows)" if len(frame) > rows else ""
    heading(question.title, shown, err=err, apart=True)
    if len(frame):
        text = format_table(frame.head(rows), terminal_width(), expendable=question.expendable)
        echo(text, err=err)
    else:
        echo("No rows: no finished task was recorded.", err=err)
