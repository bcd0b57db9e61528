"""The events that user code recorded, as a table."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from dasfprof.analysis.trace import Trace


def own_events(trace: Trace) -> pd.DataFrame:
    """List the events of user code by their time; see `TraceAnalyser`."""
    events = trace.events.sort_values("time", kind="stable")
    return pd.DataFrame(
        {
            "Event": events["name"],
            "Kind": events["kind"],
            "Start (s)": events["time"] - trace.begin,
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
    """Give a value as JSON has it; numbers that are not finite, and bytes, as text."""
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else repr(value)
