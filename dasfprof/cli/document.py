"""A run's findings and tables as one JSON document, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dasfprof.cli.tables import TABLES
from dasfprof.report.json_text import without_surrogates

if TYPE_CHECKING:
    import pandas as pd

    from dasfprof.analysis import TraceAnalyser


def document(analyser: TraceAnalyser, title: str, names: Iterable[str], rows: int | None) -> str:
    """Write answers as JSON, in ASCII.

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

    Returns
    -------
    str
        An object of ``run`` (its name), ``summary``, ``findings``, ``tables`` (by the names of
        their CSV files) and ``notes`` (what evidence is missing). A table is a list of objects by
        label; NA and numbers that are not finite are null; times are ISO 8601.
    """
    from dasfprof.report.run_summary import summarise

    tables = {
        Path(TABLES[name].file_name).stem: _records(TABLES[name].ask(analyser), rows)
        for name in names
    }
    findings = {"findings": tables.pop("findings")} if "findings" in tables else {}
    contents = {
        "run": title,
        "summary": summarise(analyser.trace),
        **findings,
        "tables": tables,
        "notes": list(analyser.trace.notes),
    }
    return json.dumps(_plain(contents), indent=1, allow_nan=False)


def _records(frame: pd.DataFrame, rows: int | None) -> list[dict[Any, Any]]:
    whole = frame if rows is None else frame.head(rows)
    values = whole.astype(object).where(whole.notna(), None)
    records: list[dict[Any, Any]] = values.to_dict("records")
    return records


def _plain(value: Any) -> Any:
    """Give a value as JSON has it."""
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
