"""From the time of one side to that of the other: differences that sum to the whole one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.matching import Matching
from dasfprof.analysis.comparison.parts import MEANINGS, Parts


def make_waterfall(
    before: Sequence[Parts],
    after: Sequence[Parts],
    matching: Matching,
    name: str,
) -> pd.DataFrame:
    """List what each class of each function or step adds to the difference of the sides' means.

    Parameters
    ----------
    before, after
        What the time of each run consists of.
    matching
        Which names are which.
    name
        The label of the column of names.

    Returns
    -------
    DataFrame
        ``Class``, `name`, ``Before (s)``, ``After (s)`` (means of the runs),
        ``Difference (s)``, ``Meaning`` of the class; the largest differences first. Each column
        of seconds sums to the whole: nothing is rounded or left out.
    """
    first = _mean(before, matching.label_before)
    second = _mean(after, matching.label_after)
    parts = list(dict.fromkeys([*first, *second]))
    old = np.array([first.get(part, 0.0) for part in parts], dtype=float)
    new = np.array([second.get(part, 0.0) for part in parts], dtype=float)
    table = pd.DataFrame(
        {
            "Class": pd.Series([kind for kind, _ in parts], dtype=object),
            name: pd.Series([label for _, label in parts], dtype=object),
            "Before (s)": old,
            "After (s)": new,
            "Difference (s)": new - old,
            "Meaning": pd.Series([MEANINGS[kind] for kind, _ in parts], dtype=object),
        }
    )
    order = np.argsort(-np.abs(new - old), kind="stable")
    return table.take(order).reset_index(drop=True)


def _mean(runs: Sequence[Parts], label: Callable[[str], str]) -> Parts:
    """Average the parts of runs; what one lacks is none there."""
    sums: Parts = {}
    for parts in runs:
        for (kind, name), seconds in parts.items():
            part = kind, label(name)
            sums[part] = sums.get(part, 0.0) + seconds
    return {part: seconds / len(runs) for part, seconds in sums.items()}
