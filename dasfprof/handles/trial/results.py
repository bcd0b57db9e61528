"""Results of runs: whether what they print or return is the same, and what files they wrote."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.trial import Agreement
from dasfprof.text import clean, count_of, excerpt

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LONGEST = 80
#: What Python and Dask leave in the working directory.
_OTHERS = {"__pycache__", "dask-scratch-space", "dask-worker-space"}
_MOST = 5


def compare_prints(plain: Sequence[str], changed: Sequence[str], tolerance: float) -> Agreement:
    """Compare what a program printed as it is, and with a change.

    Whole numbers have to be the same, others may differ by a share `tolerance`. Lines that are
    others in each run as it is cannot be compared; those that are the same each time are.
    """
    before = [text.splitlines() for text in plain]
    after = [text.splitlines() for text in changed]
    first = before[0]
    if any(len(lines) != len(first) for lines in before):
        return Agreement(
            "not comparable",
            "The program prints other things each time: results cannot be compared.",
        )
    varying = {
        place
        for lines in before[1:]
        for place, (one, other) in enumerate(zip(first, lines, strict=True))
        if not same_line(one, other, tolerance)
    }
    for lines in after:
        if len(lines) != len(first):
            return Agreement(
                "differ",
                f"With the change the program prints {count_of(len(lines), 'line')}, as it is "
                f"{len(first)}: results differ.",
            )
        for place, (one, other) in enumerate(zip(first, lines, strict=True)):
            if place not in varying and not same_line(one, other, tolerance):
                return Agreement(
                    "differ",
                    f"With the change the program prints {excerpt(other, _LONGEST)!r} where it "
                    f"printed {excerpt(one, _LONGEST)!r} each time (line {place + 1}): results "
                    "differ.",
                )
    if not varying:
        same = "It prints the same" if first else "It prints nothing and ends well,"
        return Agreement("equal", f"{same} with the change and without.")
    told = "The program prints other things each time"
    if len(varying) == len(first):
        return Agreement("not comparable", f"{told}: results cannot be compared.")
    return Agreement(
        "in part",
        f"{told} ({len(varying)} of {count_of(len(first), 'line')}): results cannot be compared "
        "there. The other lines are the same with the change and without.",
    )


def same_line(one: str, other: str, tolerance: float) -> bool:
    """Return whether two lines are the same but for the last digits of numbers."""
    if one == other:
        return True
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(_same_number(first, second, tolerance) for first, second in pairs)


def _same_number(one: str, other: str, tolerance: float) -> bool:
    if one == other:
        return True
    if one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit():
        return False
    first, second = float(one), float(other)
    # A number beyond any float, such as a hash that looks like one, is compared as a text.
    return math.isfinite(first) and math.isclose(first, second, rel_tol=tolerance)


# --- what functions return ------------------------------------------------------------------------


def compare_values(
    plain: Sequence[object], changed: Sequence[object], tolerance: float
) -> Agreement:
    """Compare what a function returned as it is, and with a change."""
    if not all(same_value(plain[0], value, tolerance) for value in plain):
        return Agreement(
            "not comparable",
            "The function returns other things each time: results cannot be compared.",
        )
    for value in changed:
        if not same_value(plain[0], value, tolerance):
            return Agreement(
                "differ",
                f"With the change the function returns {excerpt(repr(value), _LONGEST)}, as it is "
                f"{excerpt(repr(plain[0]), _LONGEST)}: results differ.",
            )
    return Agreement("equal", "It returns the same with the change and without.")


def same_value(one: object, other: object, tolerance: float) -> bool:
    """Return whether two values are the same but for the last digits of floats, also within."""
    if isinstance(one, pd.DataFrame | pd.Series | pd.Index):
        return type(one) is type(other) and _same_table(one, other, tolerance)
    if isinstance(one, np.ndarray | np.generic | float | complex):
        return _same_array(one, other, tolerance)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            same_value(value, other[name], tolerance) for name, value in one.items()
        )
    if isinstance(one, list | tuple):
        return (
            isinstance(other, type(one))
            and len(one) == len(other)
            and all(map(same_value, one, other, [tolerance] * len(one)))
        )
    try:
        return bool(one == other)
    except Exception:  # of a type with an equality of its own
        return False


def _same_table(one: Any, other: Any, tolerance: float) -> bool:
    tables = pd.DataFrame(one), pd.DataFrame(other)
    try:
        pd.testing.assert_frame_equal(*tables, rtol=tolerance, atol=0.0, check_exact=False)
    except AssertionError:
        return False
    return True


def _same_array(one: object, other: object, tolerance: float) -> bool:
    try:
        first, second = np.asarray(one), np.asarray(other)
        if first.shape != second.shape:
            return False
        if first.dtype.kind in "fc" or second.dtype.kind in "fc":
            return bool(np.allclose(first, second, rtol=tolerance, atol=0.0, equal_nan=True))
        return bool(np.array_equal(first, second))
    except (TypeError, ValueError):
        return False


def files_here() -> dict[str, tuple[int, int]]:
    """Return the time and size of each entry of the working directory, not of those within."""
    found = {}
    with os.scandir() as entries:
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue
            found[entry.name] = status.st_mtime_ns, status.st_size
    return found


def changed_files(before: dict[str, tuple[int, int]], traces: Path) -> list[str]:
    """Return the names of entries that are new or others than before, our own traces left out.

    Of many the first few, and how many there are besides.
    """
    own = _OTHERS | {Path(os.path.relpath(traces)).parts[0]}
    changed = sorted(
        name
        for name, status in files_here().items()
        if name not in own and before.get(name) != status
    )
    names = [clean(name) for name in changed[:_MOST]]
    return names if len(changed) <= _MOST else [*names, f"and {len(changed) - _MOST} more"]
