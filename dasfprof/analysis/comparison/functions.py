"""Comparison of the functions or steps of two groups of runs: names, counts and durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.numeric.significance import CERTAIN, holm, mann_whitney_p, welch_p
from dasfprof.analysis.run import Run

By = Literal["function", "step"]

#: Resolution of clocks in seconds. Shorter durations count as this long.
_LEAST_SECONDS = 1e-6
#: Label of a function without a significant change.
UNCERTAIN = "uncertain"


#: Columns of task runs that are compared.
_TAKEN = ["duration", "input_size", "size", "cpu", "held"]
_FIGURES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "Median {} (s)": lambda runs: runs["duration"].median(),
    "95th Percentile {} (s)": lambda runs: runs["duration"].quantile(0.95),
    "Median Result {} (MB)": lambda runs: runs["size"].median() / 1e6,
    "Throughput {} (MB/s)": lambda runs: (
        _ratio(runs["input_size"].replace(0, np.nan), runs["duration"]) / 1e6
    ),
    "CPU {} (%)": lambda runs: _ratio(runs["cpu"], runs["duration"][runs["cpu"].notna()]) * 100,
    "Highest Memory {} (MB)": lambda runs: runs["held"].max() / 1e6,
}


def _ratio(part: pd.Series, total: pd.Series) -> float:
    parts, sums = part.sum(min_count=1), total.sum()
    return float(parts / sums) if sums > 0 else np.nan


def compare_functions(
    before: Sequence[Run], after: Sequence[Run], least: float, by: By = "function"
) -> pd.DataFrame:
    """Return a table of the functions or steps of both groups. See `RunComparison.functions`.

    If there is one run per group, a function only counts as changed if its median duration differs
    by at least the fraction `least`. If `least` is NaN, no function counts as changed.
    """
    sides = (len(before), len(after))
    first, second = _by_name(before, by), _by_name(after, by)
    names = list(dict.fromkeys([*first, *second]))
    pairs = [(first.get(name, []), second.get(name, [])) for name in names]
    nothing = pd.DataFrame(columns=_TAKEN, dtype=float)
    joined = [[pd.concat(part) if part else nothing for part in pair] for pair in pairs]
    counts = [np.array([len(pair[s]) / sides[s] for pair in joined]) for s in (0, 1)]
    totals = [np.array([pair[s]["duration"].sum() / sides[s] for pair in joined]) for s in (0, 1)]
    ended = tuple(all(run.ending is None for run in side) for side in (before, after))
    figures = {
        title.format(word): np.array([figure(pair[side]) for pair in joined], dtype=float)
        for title, figure in _FIGURES.items()
        for side, word in enumerate(("Before", "After"))
    }
    p = holm(np.array([_p(*pair, single_runs=sides == (1, 1)) for pair in pairs]))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = figures["Median After (s)"] / figures["Median Before (s)"] - 1
    sure = (p < CERTAIN) & (np.abs(ratio) >= (least if sides == (1, 1) else 0.0))
    words = np.where(sure, np.where(ratio > 0, "slower", "faster"), UNCERTAIN)
    changes = [_change_of_count(was, now, ended) for was, now in zip(*counts, strict=True)]
    table = pd.DataFrame(
        {
            by.capitalize(): pd.Series(names, dtype=object),
            "Tasks": pd.Series(changes, dtype=object),
            "Task Runs Before": counts[0],
            "Task Runs After": counts[1],
            "Change (%)": ratio * 100,
            "p": p,
            "Changed": pd.Series(words, dtype=object),
            **figures,
            "Total Before (s)": totals[0],
            "Total After (s)": totals[1],
        }
    )
    order = np.argsort(-np.abs(totals[1] - totals[0]), kind="stable")
    return table.take(order).reset_index(drop=True)


def share_in_common(functions: pd.DataFrame) -> float:
    """Return which fraction of their time the groups spent in functions that both groups have.

    The result is the smaller one of the two groups' fractions. It is 1 for a group without time.
    """
    both = (functions[["Task Runs Before", "Task Runs After"]] > 0).all(axis=1)
    shares = []
    for column in ("Total Before (s)", "Total After (s)"):
        total = float(functions[column].sum())
        shares.append(float(functions.loc[both, column].sum()) / total if total > 0 else 1.0)
    return min(shares)


def _by_name(traces: Sequence[Run], by: By) -> dict[str, list[pd.DataFrame]]:
    """Return the successful task runs of each function (or step), as one table per run.

    Runs without such task runs have no table. The column ``held`` contains the maximum memory of
    the process in samples during the task run, in bytes.
    """
    by_name: dict[str, list[pd.DataFrame]] = {}
    for trace in traces:
        tasks, (codes, names) = trace.tasks, groups_by(by, trace.tasks)
        runs = tasks[_TAKEN[:-1]].astype(float).assign(held=memory_of_runs(trace).highest)
        succeeded = (tasks["state"] == "memory").to_numpy(dtype=bool)
        known = runs[succeeded].replace([np.inf, -np.inf], np.nan)
        of = pd.Categorical.from_codes(codes[succeeded], pd.Index(names, dtype=object))
        for name, group in known.groupby(pd.CategoricalIndex(of), observed=True):
            by_name.setdefault(str(name), []).append(group)
    return by_name


def _p(
    before: Sequence[pd.DataFrame], after: Sequence[pd.DataFrame], *, single_runs: bool
) -> float:
    """Return the p-value of a change in duration, or NaN if there are too few runs."""
    sides = [[runs["duration"].dropna() for runs in side] for side in (before, after)]
    if single_runs:
        none = [np.empty(0)]
        # The tasks of two runs are weaker evidence, because those of a run share their host and
        # time.
        return mann_whitney_p(*(np.concatenate([*none, *side]) for side in sides))
    medians = [np.array([runs.median() for runs in side if len(runs)]) for side in sides]
    if min(map(len, medians)) == 0 or sum(map(len, medians)) < 3:
        return float("nan")
    return welch_p(*(np.log(np.maximum(each, _LEAST_SECONDS)) for each in medians))


def _change_of_count(before: float, after: float, ended: tuple[bool, ...]) -> str:
    """Return how the number of task runs changed."""
    if not before or not after:
        # A run that did not end might have had more task runs.
        if (before or after) and not ended[0 if after else 1]:
            return "not clear"
        return "new" if after else "gone" if before else ""
    return "same" if before == after else "more" if after > before else "fewer"
