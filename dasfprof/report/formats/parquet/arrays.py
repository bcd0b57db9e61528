"""Columns of a trace as Arrow arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.tables.own_events import json_value
from dasfprof.database.columns import Array
from dasfprof.report.formats.parquet.schema import Column
from dasfprof.report.json_text import without_surrogates

_MICROSECONDS = 1e6
#: Beyond it a float is no int64.
_LIMIT = float(1 << 63)
_UNITS = {"bytes": "B", "seconds": "s", "time": "UTC"}


def field_of(column: Column) -> Any:
    """Return the Arrow field of a column: name, type, meaning and unit."""
    import pyarrow as pa

    types = {
        "id": pa.int64(),
        "count": pa.int64(),
        "bytes": pa.int64(),
        "seconds": pa.float64(),
        "number": pa.float64(),
        "time": pa.timestamp("us", "UTC"),
        "flag": pa.bool_(),
        "ids": pa.list_(pa.int64()),
    }
    about = {"description": column.about}
    if column.kind in _UNITS:
        about["unit"] = _UNITS[column.kind]
    name = without_surrogates(column.name)
    return pa.field(name, types.get(column.kind, pa.string()), metadata=about)


def as_array(column: pd.Series[Any], kind: str) -> Any:
    """Convert a column to an Arrow array of a kind; NA becomes null."""
    import pyarrow as pa

    if kind == "text":
        return _texts(column)
    if kind == "flag":
        return pa.array(column, pa.bool_(), from_pandas=True)
    values = column.to_numpy(dtype=float, na_value=np.nan)
    if kind in ("seconds", "number"):
        return pa.array(values, pa.float64(), mask=np.isnan(values))
    if kind == "time":
        numbers = _whole(values * _MICROSECONDS)
        return numbers.cast(pa.timestamp("us", "UTC"))
    return _whole(np.where(values == -1, np.nan, values) if kind == "id" else values)


def as_lists(lengths: Array, ids: Array) -> Any:
    """Make an Arrow array of lists of ids; a list of length -1 is null."""
    import pyarrow as pa

    offsets = np.r_[0, np.cumsum(np.maximum(lengths, 0))].astype(np.int32)
    unknown = pa.array(lengths < 0)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids, pa.int64()), mask=unknown)


def _whole(values: Array) -> Any:
    import pyarrow as pa

    known = np.abs(values) < _LIMIT  # not so of NaN
    numbers = np.rint(np.where(known, values, 0.0)).astype(np.int64)
    return pa.array(numbers, pa.int64(), mask=~known)


def _texts(column: pd.Series[Any]) -> Any:
    import pyarrow as pa

    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        names = pa.array([_text(name) for name in column.cat.categories], pa.string())
        return names.take(pa.array(codes, mask=codes < 0))
    # Equal rows share their object, which may be a dict: it is told by its identity.
    values = column.tolist()
    codes, distinct = pd.factorize(np.fromiter(map(id, values), np.int64, len(values)))
    known = dict(zip(map(id, values), values, strict=True))
    texts = pa.array([_text(known[number]) for number in distinct.tolist()], pa.string())
    return texts.take(pa.array(codes))


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    nested = isinstance(value, dict) or (
        isinstance(value, tuple) and any(isinstance(item, dict | tuple) for item in value)
    )
    return without_surrogates(json.dumps(json_value(value)) if nested else str(value))
