"""Columns of one value: arrays that repeat it, have it in memory once, and cannot be written to."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.database.columns import Array


def is_constant(array: Array) -> bool:
    """Return whether an array repeats one value that is in memory once."""
    return array.strides == (0,) and len(array) > 0


def is_nothing(array: Array) -> bool:
    """Return whether an array repeats NaN that is in memory once."""
    return is_constant(array) and bool(np.isnan(array[0]))


def as_type(array: Array, dtype: Any) -> Array:
    """Return an array in another type; a constant stays one."""
    if is_constant(array):
        return np.broadcast_to(array[0].astype(dtype), len(array))
    return array.astype(dtype, copy=False)


def taken(array: Array, rows: Array) -> Array:
    """Return some rows of an array; a constant stays one."""
    return np.broadcast_to(array[0], len(rows)) if is_constant(array) else array[rows]
