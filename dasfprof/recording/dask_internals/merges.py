"""Search for merges in which many rows of both dataframes certainly have the same key.

Nothing is computed. Upper bounds of the number of different keys come from dtypes, from dataframes
in memory, or from statistics in the footers of Parquet files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, prod
from typing import Any

import numpy as np

from dasfprof.recording.dask_internals.built_lines import is_expression
from dasfprof.recording.dask_internals.layer_sizes import row_groups, rows_of

#: Threshold: a merge is reported if both dataframes have more rows per key than this, on average.
_REPEATS = 10
#: Maximum number of rows of a dataframe in memory for which different values are counted.
_MOST_COUNTED = 10_000_000
#: Expressions that return all rows of their first operand, and expressions that return some of its
#: rows. They do not change columns, except the columns that ``Assign`` assigns.
_ALL_ROWS = {"Projection", "Assign", "AssignPartitioningIndex", "FusedIO", "FusedParquetIO"}
_SOME_ROWS = {"Filter", "DropnaFrame"}


def product_merges(expressions: Iterable[Any]) -> Iterator[tuple[str, float, float, float]]:
    """Yield merges in which each key has many rows in both dataframes, on average.

    Each item has the name of the merge, the number of rows of the left and of the right dataframe,
    and an upper bound of the number of different keys.
    """
    for part in expressions:
        if not {"left", "right", "left_on", "right_on"} <= set(getattr(part, "_parameters", ())):
            continue
        counts, keys = [], inf
        for side in ("left", "right"):
            frame, on = part.operand(side), part.operand(f"{side}_on")
            columns = on if isinstance(on, list) else [on]
            counts.append(_count(frame))
            keys = min(keys, prod(_most_values(frame, column) for column in columns))
        if min(counts) > _REPEATS * keys:
            yield part._name, *counts, keys


def _inner(part: Any, kinds: set[str] = _ALL_ROWS | _SOME_ROWS) -> Any:
    """Return the input whose rows an expression passes on, or None if it passes on no rows.

    `kinds` has the names of the classes of expressions that pass rows on. Shuffles and fused
    expressions are always included.
    """
    kind = type(part).__name__
    if kind == "Fused":
        return part.operand("exprs")[0]
    return part.operands[0] if kind in kinds or kind.endswith("Shuffle") else None


def _count(part: Any) -> float:
    """Return the number of rows of an expression, or 0 if the number is unknown."""
    while (inner := _inner(part, _ALL_ROWS)) is not None:
        part = inner
    rows = rows_of(part)
    return 0.0 if rows is None else float(rows.sum())


def _most_values(part: Any, column: Any) -> float:
    """Return an upper bound of the number of different values of a column, or infinity."""
    if not isinstance(column, str) or column not in part._meta:
        return inf
    dtype = part._meta[column].dtype
    if dtype.kind == "b":
        return 2
    while (inner := _inner(part)) is not None:
        if type(part).__name__ == "Assign" and column in part.operands[1::2]:
            value = part.operands[2::2][part.operands[1::2].index(column)]
            return inf if is_expression(value) or not np.isscalar(value) else 1
        part = inner
    if type(part).__name__ == "FromPandas":
        frame = part.frame._data
        return frame[column].nunique() if len(frame) <= _MOST_COUNTED else inf
    if {"filters", "columns"} <= set(getattr(part, "_parameters", ())) and dtype.kind in "iu":
        return _range_in_footers(part, column)
    return inf


def _range_in_footers(read: Any, column: str) -> float:
    """Return how many integers a Parquet column's range spans, or infinity without statistics."""
    least, most = inf, -inf
    for group in (group for partition in row_groups(read) or () for group in partition):
        columns = map(group.column, range(group.num_columns))
        statistics = next((x.statistics for x in columns if x.path_in_schema == column), None)
        if statistics is None or not statistics.has_min_max:
            return inf
        least, most = min(least, statistics.min), max(most, statistics.max)
    return most - least + 1 if most >= least else inf
