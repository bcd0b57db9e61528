"""A column in the making: the arrays of many batches, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.database.columns import Array

#: Rows that are merged while more are read. The small arrays of batches, kept until the end, would
#: leave the memory in fragments that serve for nothing else.
_MERGED_ROWS = 200_000


class Pieces:
    """Pieces of a column, in the order of rows; rows between them are missing."""

    def __init__(self) -> None:
        self._merged: list[tuple[int, Array]] = []
        self._begin = self._end = 0
        self._loose: list[Array] = []

    def add(self, row: int, piece: Array) -> None:
        """Take the piece that begins at a row."""
        if row != self._end or self._end - self._begin >= _MERGED_ROWS:
            self._merge()
            self._begin = row
        self._loose.append(piece)
        self._end = row + len(piece)

    def narrowest_float(self) -> type[np.floating[Any]]:
        """Give the float type that holds all pieces."""
        pieces = [*self._loose, *(piece for _, piece in self._merged)]
        return np.float32 if all(piece.dtype == np.float32 for piece in pieces) else np.float64

    def whole(self, shape: Any, dtype: Any, missing: float) -> Array:
        """Put the column together, and forget the pieces."""
        self._merge()
        pieces, self._merged = self._merged, []
        rows = shape if isinstance(shape, int) else shape[0]
        if len(pieces) == 1 and len(pieces[0][1]) == rows:
            return pieces[0][1].astype(dtype, copy=False)
        covered = sum(len(piece) for _, piece in pieces) == rows
        whole = np.empty(shape, dtype) if covered else np.full(shape, missing, dtype)
        for row, piece in pieces:
            whole[row : row + len(piece)] = piece
        return whole

    def _merge(self) -> None:
        if self._loose:
            self._merged.append((self._begin, np.concatenate(self._loose)))
            self._loose = []
