"""A run's findings and tables as one JSON document, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.report.json_text import without_surrogates
from dasfprof.report.terminal.answers import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import TraceAnalyser

#: Rows that are text at a time.
_BLOCK = 1 << 12


def document(
    analyser: TraceAnalyser, title: str, names: Iterable[str], rows: int | None
) -> Iterator[str]:
    """Write answers as JSON, in ASCII, piece by piece.

    The whole is an object of ``run`` (its name), ``summary``, ``findings``, ``tables`` (by the
    names of their CSV files) and ``notes`` (on missing data). A table is a list of objects
    by label; NA and numbers that are not finite are null; times are ISO 8601.

    Parameters
    ----------
    analyser
        The run.
    title
        What it is called.
    names
        Which of `TABLES`.
    rows
        How many rows of each; None: all.
    """
    from dasfprof.report.run_summary import summarise

    yield f'{{"run": {_json(title)},\n"summary": {_json(summarise(analyser.trace))},\n'
    tables = [TABLES[name] for name in names]
    for table in tables:
        if table.method == "diagnose":
            yield from _member("findings", table.ask(analyser), rows)
            yield ",\n"
    yield '"tables": {'
    separator = "\n"
    for table in tables:
        if table.method != "diagnose":
            yield separator
            yield from _member(Path(table.file_name).stem, table.ask(analyser), rows)
            separator = ",\n"
    yield f'}},\n"notes": {_json([note.text for note in analyser.trace.notes])}}}\n'


def _member(name: str, frame: pd.DataFrame, rows: int | None) -> Iterator[str]:
    """Write a table, a row a line."""
    yield f"{_json(name)}: ["
    whole = frame if rows is None else frame.head(rows)
    separator = "\n"
    for begin in range(0, len(whole), _BLOCK):
        block = whole.iloc[begin : begin + _BLOCK]
        values = block.astype(object).where(block.notna(), None)
        yield separator + ",\n".join(map(_json, values.to_dict("records")))
        separator = ",\n"
    yield "]"


def _json(value: Any) -> str:
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON has."""
    if isinstance(value, dict):
        return {without_surrogates(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value
