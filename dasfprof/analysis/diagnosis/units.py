"""Figures in words, as findings say them."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Return seconds to three figures, in a unit that suits them."""
    if not math.isfinite(seconds):
        return "an unknown time"
    if abs(seconds) >= 1 or seconds == 0:
        return f"{seconds:,.0f} s" if abs(seconds) >= 100 else f"{seconds:.3g} s"
    if abs(seconds) >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us"


def percent(share: float) -> str:
    """Return a share in percent, to whole ones from 10 on."""
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.2g} %"


def size(nbytes: float) -> str:
    """Return bytes to three figures; MB are 1e6."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def times(factor: float) -> str:
    """Return a factor."""
    return f"{factor:.2g}" if factor < 10 else f"{factor:,.0f}"


def excerpt(text: str, length: int = 200) -> str:
    """Return the begin of a text that may be long, such as that of an exception, in one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def count(number: int, noun: str) -> str:
    """Return a number of things."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
