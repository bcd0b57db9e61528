"""The functions, or steps, of two sides: how often each ran, for how long, on how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dasfprof.analysis.comparison.matching import Matching
from dasfprof.analysis.comparison.verdict import CERTAIN
from dasfprof.analysis.comparison.waterfall import By
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.numeric.significance import holm, mann_whitney_p, welch_p
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array

#: Shorter durations are taken to be this: clocks tell no less.
_LEAST_SECONDS = 1e-6
#: What is said of a function that may be as it was.
UNCERTAIN = "uncertain"
_NOTHING = np.empty(0)


@dataclass
class _NamedRuns:
    """The task runs of a function or step that ended in memory, of one side."""

    #: Of each run of the side that has any: durations, input bytes, result bytes, CPU seconds, and
    #: the most bytes that the process held meanwhile, at a sample.
    seconds: list[Array] = field(default_factory=list)
    taken: list[Array] = field(default_factory=list)
    made: list[Array] = field(default_factory=list)
    cpu: list[Array] = field(default_factory=list)
    held: list[Array] = field(default_factory=list)

    def all_of(self, parts: list[Array]) -> Array:
        found: Array = np.concatenate(parts) if parts else _NOTHING
        known: Array = found[np.isfinite(found)]
        return known

    def count(self, runs: int) -> float:
        """Return how many task runs a run of the side has."""
        return sum(map(len, self.seconds)) / runs

    def quantile(self, share: float) -> float:
        seconds = self.all_of(self.seconds)
        return float(np.quantile(seconds, share)) if len(seconds) else np.nan

    def size(self) -> float:
        made = self.all_of(self.made)
        return float(np.median(made)) if len(made) else np.nan

    def memory(self) -> float:
        held = self.all_of(self.held)
        return float(held.max()) if len(held) else np.nan

    def throughput(self) -> float:
        seconds, taken = self.all_of(self.seconds).sum(), self.all_of(self.taken).sum()
        return float(taken / seconds) if seconds > 0 and taken > 0 else np.nan

    def on_cpu(self) -> float:
        """Return the share of the known task runs' time that was spent on a core."""
        if not self.cpu:
            return np.nan
        cpu, seconds = np.concatenate(self.cpu), np.concatenate(self.seconds)
        whole = seconds[np.isfinite(cpu)].sum()
        return float(np.nansum(cpu) / whole) if whole > 0 else np.nan

    def medians(self) -> Array:
        """Return the logarithm of the median duration in each run."""
        medians = np.array([np.median(part) for part in self.seconds if len(part)])
        logarithms: Array = np.log(np.maximum(medians, _LEAST_SECONDS))
        return logarithms


_FIGURES: dict[str, Callable[[_NamedRuns], float]] = {
    "Median {} (s)": lambda runs: runs.quantile(0.5),
    "95th Percentile {} (s)": lambda runs: runs.quantile(0.95),
    "Median Result {} (MB)": lambda runs: runs.size() / 1e6,
    "Throughput {} (MB/s)": lambda runs: runs.throughput() / 1e6,
    "CPU {} (%)": lambda runs: runs.on_cpu() * 100,
    "Highest Memory {} (MB)": lambda runs: runs.memory() / 1e6,
}


def compare_functions(
    before: Sequence[Run],
    after: Sequence[Run],
    matching: Matching,
    least: float,
    by: By = "function",
) -> pd.DataFrame:
    """List the functions, or steps, of both sides; see `RunComparison.functions`.

    Parameters
    ----------
    before, after
        The runs.
    matching
        Which functions or steps are which.
    least
        With one run each, the least share by which a function must differ to be called changed.
    by
        What a row is.
    """
    first = _by_name(before, matching.label_before, by)
    second = _by_name(after, matching.label_after, by)
    names = list(dict.fromkeys([*first, *second]))
    pairs = [(first.get(n, _NamedRuns()), second.get(n, _NamedRuns())) for n in names]
    sides = (len(before), len(after))
    counts = [np.array([pair[s].count(sides[s]) for pair in pairs]) for s in (0, 1)]
    totals = [
        np.array([pair[s].all_of(pair[s].seconds).sum() / sides[s] for pair in pairs])
        for s in (0, 1)
    ]
    ended = tuple(all(run.ending is None for run in side) for side in (before, after))
    columns: dict[str, object] = {
        by.capitalize(): pd.Series(names, dtype=object),
        "Tasks": pd.Series(
            [_change_of_count(was, now, ended) for was, now in zip(*counts, strict=True)],
            dtype=object,
        ),
        "Task Runs Before": counts[0],
        "Task Runs After": counts[1],
    }
    for title, figure in _FIGURES.items():
        for side, word in enumerate(("Before", "After")):
            columns[title.format(word)] = np.array([figure(pair[side]) for pair in pairs])
    columns["Total Before (s)"], columns["Total After (s)"] = totals
    table = pd.DataFrame(columns)
    p = holm(np.array([_p(*pair, one_each=sides == (1, 1)) for pair in pairs]))
    ratio = table["Median After (s)"] / table["Median Before (s)"] - 1
    table.insert(4, "Change (%)", ratio * 100)
    table.insert(5, "p", p)
    far = np.abs(ratio) >= (least if sides == (1, 1) else 0.0)
    sure = (p < CERTAIN) & far.to_numpy()
    words = np.where(ratio > 0, "slower", "faster")
    table.insert(6, "Changed", pd.Series(np.where(sure, words, UNCERTAIN), dtype=object))
    order = np.argsort(-np.abs(totals[1] - totals[0]), kind="stable")
    return table.take(order).reset_index(drop=True)


def share_in_common(functions: pd.DataFrame) -> float:
    """Return the lesser share of a side's time in functions that both have; 1 of no time."""
    both = (functions[["Task Runs Before", "Task Runs After"]] > 0).all(axis=1)
    shares = []
    for column in ("Total Before (s)", "Total After (s)"):
        total = float(functions[column].sum())
        shares.append(float(functions.loc[both, column].sum()) / total if total > 0 else 1.0)
    return min(shares)


def _by_name(traces: Sequence[Run], label: Callable[[str], str], by: By) -> dict[str, _NamedRuns]:
    found: dict[str, _NamedRuns] = {}
    for trace in traces:
        tasks = trace.tasks
        kept = np.flatnonzero((tasks["state"] == "memory").to_numpy(dtype=bool))
        if by == "step":
            codes, names = step_groups(tasks)
        else:
            column = tasks["function"].cat
            codes, names = column.codes.to_numpy().astype(np.int64), list(column.categories)
        codes = codes[kept]
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
        values = [
            tasks[name].to_numpy(dtype=float)[kept[order]]
            for name in ("duration", "input_size", "size", "cpu")
        ]
        values.append(memory_of_runs(trace).highest[kept[order]])
        for code, name in enumerate(names):
            own = slice(bounds[code], bounds[code + 1])
            if own.start < own.stop:
                runs = found.setdefault(label(str(name)), _NamedRuns())
                parts = (runs.seconds, runs.taken, runs.made, runs.cpu, runs.held)
                for part, value in zip(parts, values, strict=True):
                    part.append(value[own])
    return found


def _p(before: _NamedRuns, after: _NamedRuns, *, one_each: bool) -> float:
    """Test whether a function takes another time: by runs where there are several, else by tasks.

    Tasks of one run have its machine and moment in common, so that they count for less than runs.
    """
    if one_each:
        return mann_whitney_p(before.all_of(before.seconds), after.all_of(after.seconds))
    first, second = before.medians(), after.medians()
    if min(len(first), len(second)) == 0 or len(first) + len(second) < 3:
        return float("nan")
    return welch_p(first, second)


def _change_of_count(before: float, after: float, ended: tuple[bool, ...]) -> str:
    """Name the change; what a side lacks that did not end might have come yet."""
    if not before or not after:
        if (before or after) and not ended[0 if after else 1]:
            return "not clear"
        return "new" if after else "gone" if before else ""
    return "same" if before == after else "more" if after > before else "fewer"
