"""A column in the making: takes the arrays of batches, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.analysis.numeric.constants import is_constant
from dasfprof.database.columns import Array

#: A column grows in place. A large one grows a little at a time: the system moves pages, not bytes,
#: and most of the time of reading large traces is the first touch of new memory. A small one grows
#: by more: there, most of the time is the calls.
_GROWTH, _GROWTH_OF_SMALL = 1.125, 1.5
_LEAST_ROWS, _SMALL_ROWS = 10_000, 1 << 20


class GrowingColumn:
    """A column that grows; rows between the arrays that it takes are missing.

    As long as all rows hold one value, it takes the memory of one.

    Parameters
    ----------
    dtype
        Of the column; arrays of wider types widen it.
    width
        Values in a row; 1 makes a column of one dimension.
    """

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self._width = width
        self._rows = 0
        self._gaps: list[tuple[int, int]] = []
        self._array: Array = np.empty(self._shape(0), dtype)
        #: The value of all rows so far, in an array of one.
        self._constant: Array | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds all values so far."""
        return self._array.dtype

    def add(self, row: int, piece: Array) -> None:
        """Take the values of the rows from `row` on."""
        if piece.dtype != self._array.dtype:
            self._widen(np.result_type(piece.dtype, self._array.dtype))
        if not len(piece):
            return
        end = row + len(piece)
        if is_constant(piece) and (not self._rows or self._constant is not None):
            value = piece[:1].astype(self.dtype)
            if self._constant is None or _same(value, self._constant):
                self._note_gap(row)
                self._rows, self._constant = end, value
                return
        self._spread()
        self._make_room(end)
        self._note_gap(row)
        self._array[row:end] = piece
        self._rows = end

    def finish(self, rows: int, missing: float) -> Array:
        """Return the column of `rows` rows, once; one of a single value is read-only."""
        self._note_gap(rows)
        value = np.array([missing]).astype(self.dtype)
        nothing = self._gaps == [(0, rows)]
        constant = value if nothing else self._constant
        if constant is not None and (not self._gaps or _same(constant, value)):
            return np.broadcast_to(constant, rows)
        self._spread()
        self._resize(rows)
        for begin, end in self._gaps:
            self._array[begin:end] = missing
        return self._array

    def _note_gap(self, row: int) -> None:
        if row > self._rows:
            self._gaps.append((self._rows, row))

    def _widen(self, dtype: np.dtype[Any]) -> None:
        if dtype != self._array.dtype:
            self._array = self._array.astype(dtype)
            if self._constant is not None:
                self._constant = self._constant.astype(dtype)

    def _spread(self) -> None:
        """Write the one value into all rows."""
        if self._constant is not None:
            self._make_room(self._rows)
            self._array[: self._rows] = self._constant
            self._constant = None

    def _make_room(self, rows: int) -> None:
        if rows > len(self._array):
            growth = _GROWTH_OF_SMALL if rows < _SMALL_ROWS else _GROWTH
            self._resize(max(rows, int(len(self._array) * growth), _LEAST_ROWS))

    def _resize(self, rows: int) -> None:
        self._array.resize(self._shape(rows), refcheck=False)  # nobody else has seen it

    def _shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if self._width == 1 else (rows, self._width)


def _same(first: Array, second: Array) -> bool:
    """Return whether two values are equal to the bit: NaN is itself, 0.0 is not -0.0."""
    return first.tobytes() == second.tobytes()
