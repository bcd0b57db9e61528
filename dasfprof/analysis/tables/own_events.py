"""The events that user code recorded, as a table."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace import Trace


def _has_events(trace: Trace) -> bool:
    return len(trace.events) > 0


@question(
    "Events of user code",
    "events",
    short="events",
    overview=7,
    expendable=("Process", "Thread"),
    page="events",
    needs=_has_events,
)
def own_events(run: Run) -> pd.DataFrame:
    """List the events that user code recorded, of kinds of its own.

    Returns
    -------
    DataFrame
        A row an event, by time: ``Event``, ``Kind`` (``span``, ``instant``; ``begin`` or ``end``
        where the other is missing), ``Start (s)`` (from the trace's begin), ``Duration (s)`` (NA
        where nothing tells, and of instants), ``Process`` and ``Thread`` as recorded, ``Args``
        (JSON). An event that begins and one that ends something, of one name, process and thread,
        are one row, with the args of both.
    """
    events = run.trace.events.sort_values("time", kind="stable")
    return pd.DataFrame(
        {
            "Event": events["name"],
            "Kind": events["kind"],
            "Start (s)": run.since(events["time"]),
            "Duration (s)": events["duration"].where(events["kind"] != "instant"),
            "Process": events["process"],
            "Thread": events["thread"],
            "Args": pd.Series([args_text(args) for args in events["args"]], events.index, object),
        }
    ).reset_index(drop=True)


def args_text(args: dict[str, Any]) -> str:
    """Write args as one line of JSON; what JSON has no form for as Python writes it."""
    return json.dumps(json_value(args), ensure_ascii=False) if args else ""


def json_value(value: Any) -> Any:
    """Return a value as JSON has it; numbers that are not finite, and bytes, as text."""
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else repr(value)
