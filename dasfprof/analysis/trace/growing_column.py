"""A column in the making: takes the arrays of batches, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.numeric.constants import is_constant
from dasfprof.database.columns import Array


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
