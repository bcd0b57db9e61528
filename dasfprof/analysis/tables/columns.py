"""Columns of reports: texts, times for people, and whole numbers of which some are unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.database.columns import Array

#: Unix seconds that nanoseconds in 64 bits can hold.
_LATEST = 9.2e9
#: Numbers up to here are exact in a float.
_EXACT = float(1 << 53)


def text(items: Array) -> pd.Series:
    """Give texts as plain objects, whatever pandas makes of texts by itself."""
    return pd.Series(items, dtype=object, copy=False)


def utc(seconds: Array) -> pd.Series:
    """Give Unix seconds as times without a zone, which spreadsheets can read; to microseconds."""
    known = np.abs(seconds) < _LATEST
    microseconds = np.round(np.where(known, seconds, 0.0) * 1e6).astype(np.int64)
    times = microseconds.astype("datetime64[us]").astype("datetime64[ns]")
    times[~known] = np.datetime64("NaT", "ns")
    return pd.Series(times)


def whole(numbers: Array) -> pd.Series:
    """Give whole numbers; what is none, or has no end, is NA."""
    rounded = np.round(numbers.astype(float))
    known = np.abs(rounded) <= _EXACT
    values = np.where(known, rounded, 0.0).astype(np.int64)
    return pd.Series(pd.arrays.IntegerArray(values, ~known))
