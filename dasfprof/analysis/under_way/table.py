"""Causes as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dasfprof.analysis.under_way.cause import Cause

if TYPE_CHECKING:
    import pandas as pd

#: Labels and the fields of a cause.
_COLUMNS = {
    "Certainty": "certainty",
    "Cause": "text",
    "Waiting Tasks": "waiting",
    "Time (s)": "seconds",
    "Function": "function",
    "Worker": "worker",
    "Line": "line",
    "Suggestion": "suggestion",
    "Evidence": "evidence",
    "Kind": "kind",
}


def causes_table(causes: Iterable[Cause]) -> pd.DataFrame:
    """Return a row for each cause, in their order."""
    import pandas as pd

    found = list(causes)
    frame = pd.DataFrame(
        {label: [getattr(cause, name) for cause in found] for label, name in _COLUMNS.items()},
        dtype=object,
    )
    return frame.astype({"Waiting Tasks": "int64", "Time (s)": "float64"})
