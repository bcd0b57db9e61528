"""A run's findings and tables as one JSON document, for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dasfprof.report.json_text import json_of

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import TraceAnalyser
    from dasfprof.analysis.tables.questions import Request

#: Rows that are text at a time.
_BLOCK = 1 << 12


def document(
    analyser: TraceAnalyser, title: str, requests: Iterable[Request], rows: int | None
) -> Iterator[str]:
    """Write answers as JSON, in ASCII, piece by piece.

    The whole is an object of ``run`` (its name), ``summary``, ``findings``, ``tables`` (by the
    names of their CSV files) and ``notes`` (on missing data). The summary of a run that is analysed
    part by part is null. A table is a list of objects
    by label; NA and numbers that are not finite are null; times are ISO 8601. A finding has its
    ``Figures`` besides.

    Parameters
    ----------
    analyser
        The run.
    title
        What it is called.
    requests
        The questions.
    rows
        How many rows of each; None: all.
    """
    from dasfprof.report.run_summary import summarise

    summary = None if analyser.is_in_parts else summarise(analyser.trace)
    yield f'{{"run": {json_of(title)},\n"summary": {json_of(summary)},\n'
    asked = list(requests)
    for request in asked:
        if request.question.name == "diagnose":
            findings = request.of(analyser)
            told = findings.assign(Figures=findings.attrs["figures"])
            yield from _member("findings", told, rows)
            yield ",\n"
    yield '"tables": {'
    separator = "\n"
    for request in asked:
        if request.question.name != "diagnose":
            yield separator
            yield from _member(request.file_stem, request.of(analyser), rows)
            separator = ",\n"
    yield f'}},\n"notes": {json_of([note.text for note in analyser.in_memory.notes])}}}\n'


def _member(name: str, frame: pd.DataFrame, rows: int | None) -> Iterator[str]:
    """Write a table, a row a line."""
    yield f"{json_of(name)}: ["
    whole = frame if rows is None else frame.head(rows)
    separator = "\n"
    for begin in range(0, len(whole), _BLOCK):
        block = whole.iloc[begin : begin + _BLOCK]
        values = block.astype(object).where(block.notna(), None)
        yield separator + ",\n".join(map(json_of, values.to_dict("records")))
        separator = ",\n"
    yield "]"
