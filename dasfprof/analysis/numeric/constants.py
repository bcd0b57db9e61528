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


# --- A column in the making: takes the arrays of batches, one after the other ---------------------


class GrowingColumn:
    """A column that grows; rows between the arrays that it takes are missing.

    If all rows hold one value, it takes the memory of one.

    Parameters
    ----------
    dtype
        Of the column; arrays of wider types widen it.
    width
        Values in a row; 1 makes a column of one dimension.
    """

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._pieces: list[tuple[int, Array]] = []

    def add(self, row: int, piece: Array) -> None:
        """Take the values of the rows from `row` on."""
        if piece.dtype != self._dtype:
            self._dtype = np.result_type(piece.dtype, self._dtype)
        if len(piece):
            self._pieces.append((row, piece))

    def finish(self, rows: int, missing: float) -> Array:
        """Return the column of `rows` rows, once; one of a single value is read-only."""
        pieces, self._pieces = self._pieces, []
        value = np.array([missing]).astype(self._dtype)
        is_whole = sum(len(piece) for _, piece in pieces) == rows
        if self._width == 1 and all(is_constant(piece) for _, piece in pieces):
            values = [piece[:1].astype(self._dtype) for _, piece in pieces]
            values += [] if is_whole and values else [value]
            # Equal to the bit: NaN is itself, 0.0 is not -0.0.
            if len({one.tobytes() for one in values}) == 1:
                return np.broadcast_to(values[0], rows)
        shape = (rows,) if self._width == 1 else (rows, self._width)
        column = np.empty(shape, self._dtype) if is_whole else np.full(shape, value)
        for row, piece in pieces:
            column[row : row + len(piece)] = piece
        return column
