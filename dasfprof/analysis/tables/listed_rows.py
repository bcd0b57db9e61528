"""The first rows of tables with a row a task run, of runs whose tables do not fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array
from dasfprof.text import count_of

#: So many rows are listed.
LISTED = 10_000


def first_rows(
    parts: Sequence[tuple[pd.DataFrame, int]], order: Callable[[pd.DataFrame], Array]
) -> pd.DataFrame:
    """Put the first rows of parts together, and keep the first of all.

    Parameters
    ----------
    parts
        The first `LISTED` rows of each part, and how many it has.
    order
        Sorts the rows.

    Warns
    -----
    UserWarning
        If there are more rows.
    """
    rows = sum(count for _, count in parts)
    # Those without rows may have columns of other types.
    tables = [table for table, count in parts if count] or [parts[0][0]]
    table = pd.concat(tables, ignore_index=True)
    table = table.take(order(table)[:LISTED]).reset_index(drop=True)
    if rows > LISTED:
        warnings.warn(
            f"this table has the first {LISTED} rows of {count_of(rows, 'row')}: the whole would "
            "not fit into memory.",
            stacklevel=2,
        )
    return table


def column(table: pd.DataFrame, name: str) -> Array:
    """Return a column of numbers of a table."""
    values: Any = table[name].to_numpy(dtype=float)
    return np.asarray(values)
