"""`write_csv_tables`: every table that the analyser gives, a CSV file each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import Request
from dasfprof.report.formats.csv import write_csv

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser


def write_csv_tables(analyser: TraceAnalyser, directory: Path) -> list[Path]:
    """Write the answer to each question that needs no arguments; gives the files.

    They are called by the analyser's methods, without ``per_``: ``function_bottleneck.csv``,
    ``processed_tasks.csv``, ``node_summary.csv``; and by what else the method can group by:
    ``time_accounting_by_worker.csv``.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return [
        write_csv(request.of(analyser), directory / f"{request.file_stem}.csv")
        for request in _requests()
    ]


def _requests() -> Iterator[Request]:
    """Each question that needs no arguments, and by what else it can group."""
    for question in questions.all():
        if not question.needs_arguments:
            yield Request(question)
            for by in question.further_groupings:
                yield Request(question, {"by": by})
