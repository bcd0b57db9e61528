"""Tables as the page takes them: `table_facts`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

_NUMBER, _TEXT = "number", "text"
#: A table with more cells than this is left to CSV: nobody reads it in a page.
_MAX_CELLS = 300_000


def table_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """Convert a table for the page: ``columns`` of ``label, kind, values``; NA is None.

    A table that is too large has ``absent``, the reason, instead.
    """
    if frame.size > _MAX_CELLS:
        return {
            "absent": f"{frame.shape[0]:,} rows of {frame.shape[1]:,} columns are too many for a "
            "page; `dasfprof analyse -o DIRECTORY` writes them as CSV"
        }
    return {"columns": [_column_facts(label, frame[label]) for label in frame.columns]}


def _column_facts(label: str, column: pd.Series[Any]) -> dict[str, Any]:
    numeric = pd.api.types.is_numeric_dtype(column.dtype)
    known = column.notna().to_numpy()
    if numeric:  # JSON has no infinite numbers
        known = np.isfinite(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.astype(object).where(known, None).tolist()
    if not numeric:
        values = [None if value is None else str(value) for value in values]
    return {"label": str(label), "kind": _NUMBER if numeric else _TEXT, "values": values}
