"""Findings and tables of a run in the form in which commands print them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dasfprof.report.terminal.console import (
    Screen,
    console,
    echo,
    first_of,
    heading,
    print_notes,
    say,
    terminal_width,
)
from dasfprof.report.terminal.findings import print_findings
from dasfprof.report.terminal.tables import format_table, print_time
from dasfprof.text import clean, elide

if TYPE_CHECKING:
    import pandas as pd
    from rich.text import Text

    from dasfprof.analysis import Analyser
    from dasfprof.analysis.run import Run
    from dasfprof.analysis.tables.questions import Question, Request

#: Labels of the columns with figures to the left of the lines.
_FIGURES = ("Thread s", "%", "Tasks", "Client s")
_NO_FILE = "no line"


def print_ledger(lines: pd.DataFrame, rows: int, *, err: bool = False) -> None:
    """Print the most expensive lines, file by file and in the order of the source.

    Parameters
    ----------
    lines
        The table `TraceAnalyser.lines`.
    rows
        Maximum number of lines.
    err
        Whether to print on standard error.
    """
    from rich.table import Table

    busy = lines[lines["Line"] != "(idle)"]
    shown = first_of(rows, len(busy), "lines")
    heading("Cost of the program's lines", shown, err=err, apart=True)
    if not len(busy):
        echo("  No lines of the program were recorded.", err=err)
        return
    target = console(err=err)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for figure in _FIGURES:
        table.add_column(figure, justify="right", no_wrap=True)
    table.add_column("Line", justify="right", no_wrap=True, style="dim")
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for cells in _rows(busy.head(rows).to_dict("records"), max(target.width - 48, 20)):
        table.add_row(*cells)
    target.print(table)


def _rows(lines: list[dict[Hashable, Any]], room: int) -> Iterator[list[Text | str]]:
    from rich.text import Text

    files: dict[str, list[tuple[int, str, dict[Hashable, Any]]]] = {}
    for line in lines:
        name, _, numbers = line["Line"].rpartition(":")
        last = numbers.rpartition(", ")[2]
        known = bool(line["File"]) and last.isdigit()
        place = (int(last), numbers) if known else (0, "")
        files.setdefault(name if known else _NO_FILE, []).append((*place, line))
    for name, of_file in files.items():
        yield ["", "", "", "", "", Text(elide(name, room), style="bold")]
        for _, numbers, line in sorted(of_file, key=lambda each: (each[0], len(each[1]))):
            text = line["Text"].strip() if numbers else line["Line"]
            yield [
                _seconds(line["Thread Time (s)"]),
                f"{line['Share (%)']:.0f}" if line["Tasks"] else "",
                f"{line['Tasks']:,}" if line["Tasks"] else "",
                _seconds(line["Client (s)"]),
                elide(numbers, 14),
                Text(elide(text, room)),
            ]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 0.005 else ""


DEFAULT_ROWS = 10
#: Number of lines that commands print in addition to findings and tables.
_SUMMARY_LINES = 9


def default_requests(run: Run) -> list[Request]:
    """Return the analyses that are printed by default and for which the run has data."""
    from dasfprof.analysis.tables import questions
    from dasfprof.analysis.tables.questions import Request

    overview = questions.overview(run)
    if len(run.events) and not len(run.tasks):
        overview = [question for question in overview if question.name == "own_events"]
    return [Request(question) for question in overview]


def print_answers(
    analyser: Analyser,
    rows: int,
    *,
    requests: Iterable[Request] = (),
    err: bool = False,
    unlimited: bool = True,
    asked: bool = False,
) -> dict[str, pd.DataFrame]:
    """Print findings and tables, then notes about missing data. Return the printed tables in full.

    In a terminal, the output fits on one screen unless `unlimited`. Tables that do not fit are only
    named, and not returned.

    Parameters
    ----------
    rows
        Maximum number of rows of each table.
    requests
        The analyses. By default, those of `default_requests`.
    err
        Whether to print on standard error.
    unlimited
        Whether to print everything, even if it is longer than the screen.
    asked
        Whether the user chose the analyses. If so, and if there are more than two notes, only their
        number is printed.
    """
    answers = {}
    screen = None if unlimited else Screen.of_terminal(_SUMMARY_LINES, err=err)
    left_out = []
    for request in requests or default_requests(analyser.run):
        question = request.question
        first = question.name == "diagnose"
        if screen is not None and screen.is_full and not first:
            left_out.append(question)
            continue
        answers[request.file_stem] = frame = request.table(analyser)
        # If the run was analysed in time windows, only the findings needed it in memory.
        trace = analyser.run if first else analyser.in_memory
        show = _printer(request, frame, trace, err=err)
        if screen is None:
            show(rows)
        elif not screen.print(show, rows, first=first):
            left_out.append(question)
    if left_out:
        names = ", ".join(question.short or question.name for question in left_out)
        say(f"Not shown: -a {names}. Use --head {rows} to print everything.", err=err, apart=True)
    notes = [note.text for note in analyser.in_memory.notes]
    if (asked or screen is not None) and len(notes) > 2:
        notes = [f"{len(notes)} notes on missing data: see dasfprof info."]
    print_notes(notes, err=err)
    return answers


def _printer(
    request: Request, frame: pd.DataFrame, run: Run, *, err: bool
) -> Callable[[int], None]:
    """Return a function that prints a given number of rows of a table."""
    from dasfprof.report.run_summary import no_findings

    question = request.question
    if question.name == "diagnose":
        return lambda rows: print_findings(frame, rows, none=no_findings(run), err=err)
    if question.name == "time_accounting" and not request.arguments:
        return lambda rows: print_time(frame, err=err)
    if question.name == "why":
        return lambda rows: _print_reasons(question, frame, rows, err=err)
    if question.name == "lines" and not request.arguments:
        return lambda rows: print_ledger(frame, rows, err=err)
    return lambda rows: _print_table(question, frame, rows, err=err)


def _print_reasons(question: Question, frame: pd.DataFrame, rows: int, *, err: bool) -> None:
    """Print the parts of a task's time as a table, and below it the descriptions of the parts."""
    _print_table(question, frame.drop(columns="Description"), rows, err=err)
    echo("", err=err)
    for part in frame.head(rows).to_dict("records"):
        if isinstance(part["Description"], str) and part["Description"]:
            say(f"{clean(part['Part'])}: {clean(part['Description'])}", err=err)


def _print_table(question: Question, frame: pd.DataFrame, rows: int, *, err: bool) -> None:
    """Print the first rows of a table."""
    heading(question.title, first_of(rows, len(frame), "rows"), err=err, apart=True)
    if len(frame):
        text = format_table(frame, terminal_width(), rows=rows, expendable=question.expendable)
        echo(text, err=err)
    else:
        echo("No rows, since nothing of this was recorded.", err=err)
