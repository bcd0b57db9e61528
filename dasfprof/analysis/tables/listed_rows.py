"""The first rows of tables with a row a task run, of runs whose tables do not fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pandas as pd

from dasfprof.database.columns import Array
from dasfprof.text import count_of

#: So many rows are listed.
LISTED = 10_000


#: The first rows of a part, and how many it has.
Listed = tuple[pd.DataFrame, int]


def folded(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> Listed:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them."""
    # Those without rows may have columns of other types.
    tables = [table for table, count in parts if count] or [parts[0][0]]
    table = pd.concat(tables, ignore_index=True)
    table = table.take(order(table)[:LISTED]).reset_index(drop=True)
    return table, sum(count for _, count in parts)


def first_rows(parts: Sequence[Listed], order: Callable[[pd.DataFrame], Array]) -> pd.DataFrame:
    """Put the first rows of parts together, and keep the first of all; `order` sorts them.

    Warns
    -----
    UserWarning
        If there are more rows.
    """
    table, rows = folded(parts, order)
    if rows > LISTED:
        warnings.warn(
            f"this table has the first {LISTED} rows of {count_of(rows, 'row')}: the whole would "
            "not fit into memory.",
            stacklevel=2,
        )
    return table
