"""Comparison of the results of runs, such as output and return values, and of the files written."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.trial import Agreement
from dasfprof.text import clean, count_of, excerpt, name_first

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_LONGEST = 80
#: Names of directories that Python and Dask create in the working directory.
SKIPPED = ("__pycache__", "dask-scratch-space", "dask-worker-space")
#: Maximum number of files below a working directory. If there are more, changes are not detected.
_MOST_FILES = 20_000
#: Maximum bytes of a file in which numbers are compared with a tolerance.
_LARGEST = 8 * 2**20


#: Results of a run by file name. The empty name stands for the output or the return value. A text
#: is a list of lines, and any other result is a list with one item.
Outputs: TypeAlias = Mapping[str, Sequence[Any]]


def compare_outputs(
    plain: Sequence[Outputs],
    changed: Sequence[Outputs],
    tolerance: float,
    verbs: tuple[str, str] = ("prints", "printed"),
) -> Agreement:
    """Compare the results of the changed runs with the results of the baseline runs.

    Integers must be equal, and floating-point numbers must be equal within a relative tolerance. A
    line is compared only if it is equal in all baseline runs. `verbs` has a verb for
    messages about the program's output, in the present and in the past tense.
    """
    first = plain[0]
    # For each result with a constant number of lines: whether each line is equal in all runs.
    steady = {
        name: [
            all(same_value(line, each[name][at], tolerance) for each in plain)
            for at, line in enumerate(lines)
        ]
        for name, lines in first.items()
        if all(name in each and len(each[name]) == len(lines) for each in plain)
    }
    for outputs in changed:
        for name, are_same in steady.items():
            does, did = (f"writes to {name}", "wrote") if name else verbs
            lines = outputs.get(name, ())
            if name not in outputs or len(lines) != len(are_same):
                return _differs(
                    f"{does} {count_of(len(lines), 'line')}, without it {len(are_same)}"
                )
            for at, pair in enumerate(zip(lines, first[name], strict=True)):
                if are_same[at] and not same_value(*pair, tolerance):
                    new, old = (excerpt(line, _LONGEST) for line in pair)
                    each = f"where it {did} {old!r} each time (line {at + 1})"
                    return _differs(f"{does} {new!r} {each}")
    # Other programs may also write to the working directory, but rarely during all of these runs.
    common = set.intersection(*map(set, changed)).difference(*plain) if len(changed) > 1 else ()
    if common:
        return _differs(f"also writes {min(common)}")
    names = dict.fromkeys(name for each in (*plain, *changed) for name in each)
    count = sum(len(steady.get(name, [False])) for name in names)
    same = sum(map(sum, steady.values()))
    if same == count:
        prints = f"{verbs[0]} the same" if count else f"{verbs[0]} nothing and succeeds"
        files = name_first([name for name in names if name])
        writes = f" It writes the same to {files}." * bool(files)
        return Agreement("equal", f"It {prints} with and without the change.{writes}")
    varies = f"What the program {verbs[0]} or writes differs in each run"
    if not same:
        return Agreement("not comparable", f"{varies}, so results cannot be compared.")
    return Agreement(
        "in part",
        f"{varies} ({count - same} of {count_of(count, 'line')}), so these cannot be compared. "
        "The other lines are the same with and without the change.",
    )


def _differs(does: str) -> Agreement:
    return Agreement("differ", f"With the change, the program {does}, so results differ.")


def same_line(left: str, right: str, tolerance: float) -> bool:
    """Return whether two lines are equal. Floats may differ by the relative `tolerance`."""
    if left == right:
        return True
    if _NUMBER.sub("#", left) != _NUMBER.sub("#", right):
        return False
    pairs = zip(_NUMBER.findall(left), _NUMBER.findall(right), strict=True)
    return all(_same_number(first, second, tolerance) for first, second in pairs)


def _same_number(left: str, right: str, tolerance: float) -> bool:
    if left == right:
        return True
    if left.lstrip("+-").isdigit() and right.lstrip("+-").isdigit():
        return False
    first, second = float(left), float(right)
    # Digits may exceed the range of floats, for example in a hash. Such texts must be equal.
    return math.isfinite(first) and math.isclose(first, second, rel_tol=tolerance)


def same_value(left: object, right: object, tolerance: float) -> bool:
    """Return whether two values, or two containers of values, are equal.

    Floats may differ by the relative `tolerance`, and so may floats in texts.
    """
    if isinstance(left, str) and isinstance(right, str):
        return same_line(left, right, tolerance)
    if isinstance(left, pd.DataFrame | pd.Series | pd.Index):
        return type(left) is type(right) and _same_table(left, right, tolerance)
    if isinstance(left, np.ndarray | np.generic | float | complex):
        return _same_array(left, right, tolerance)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            same_value(value, right[name], tolerance) for name, value in left.items()
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, type(left))
            and len(left) == len(right)
            and all(map(same_value, left, right, [tolerance] * len(left)))
        )
    try:
        return bool(left == right)
    except Exception:  # The type may define equality in its own way.
        return False


def _same_table(left: Any, right: Any, tolerance: float) -> bool:
    tables = pd.DataFrame(left), pd.DataFrame(right)
    try:
        pd.testing.assert_frame_equal(*tables, rtol=tolerance, atol=0.0, check_exact=False)
    except AssertionError:
        return False
    return True


def _same_array(left: object, right: object, tolerance: float) -> bool:
    try:
        first, second = np.asarray(left), np.asarray(right)
        if first.shape != second.shape:
            return False
        if first.dtype.kind in "fc" or second.dtype.kind in "fc":
            return bool(np.allclose(first, second, rtol=tolerance, atol=0.0, equal_nan=True))
        return bool(np.array_equal(first, second))
    except (TypeError, ValueError):
        return False


def files_below(directory: Path) -> dict[str, tuple[int, int]]:
    """Return the time of modification and the size of files below a directory, by path.

    The result contains at most `_MOST_FILES` files.
    """
    files: dict[str, tuple[int, int]] = {}
    for place, directories, names in os.walk(directory, followlinks=True):
        directories[:] = sorted(d for d in directories if d[0] != "." and d not in SKIPPED)
        for name in names:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                files[os.path.relpath(path, directory)] = status.st_mtime_ns, status.st_size
            if len(files) >= _MOST_FILES:
                return files
    return files


def written_since(
    before: Mapping[str, tuple[int, int]], directory: Path, traces: Path
) -> dict[str, list[Any]] | None:
    """Return the contents of new or changed files below a directory, without trace files.

    The result is None if there are too many files.
    """
    now = files_below(directory)
    if max(len(before), len(now)) >= _MOST_FILES:
        return None
    apart = os.path.relpath(traces, directory) + os.sep
    return {
        clean(name): _content(directory / name)
        for name, status in now.items()
        if before.get(name) != status and not name.startswith(apart)
    }


def _content(path: Path) -> list[Any]:
    """Return the lines of a text file, or a list with the array, table or digest of another file.

    If a file is large or has another format, only its digest is returned.
    """
    with contextlib.suppress(Exception):
        if path.stat().st_size <= _LARGEST:
            if path.suffix == ".npy":
                return [np.load(path)]
            if path.suffix == ".parquet":
                return [pd.read_parquet(path)]
            return path.read_text(encoding="utf-8").splitlines()
    digest = hashlib.sha256()
    with contextlib.suppress(OSError), path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return [digest.digest()]
