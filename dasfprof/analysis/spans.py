"""Spans of time that overlap."""

from __future__ import annotations

import numpy as np

from dasfprof.database.columns import Array


def union(begins: Array, ends: Array) -> tuple[Array, Array]:
    """Give the times in which at least one of the spans lasts, as spans apart, in order."""
    order = np.argsort(begins, kind="stable")
    begins, latest = begins[order], np.maximum.accumulate(ends[order])
    if not len(begins):
        return begins, latest
    apart = np.flatnonzero(begins[1:] > latest[:-1]) + 1
    return begins[np.r_[0, apart]], latest[np.r_[apart - 1, len(begins) - 1]]
