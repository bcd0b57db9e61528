"""Where two sides spent their time, as far as their stacks were sampled: lines and calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.stack_samples.places import (
    UNKNOWN,
    By,
    Call,
    CallTree,
    all_stacks,
    hot_places,
)
from dasfprof.analysis.stack_samples.spent import samples_of
from dasfprof.analysis.under_way.state import Frame

#: The name of a call: the functions on the way to it, each with its file.
_Path = tuple[tuple[str, str], ...]
_SECONDS = ["Before (s)", "After (s)", "Difference (s)"]


def compare_places(before: Sequence[Run], after: Sequence[Run], by: By) -> pd.DataFrame:
    """List lines, functions or libraries; see `RunComparison.hot_lines`."""
    sides = [_sampled(side) for side in (before, after)]
    first, second = (_places(side, by) for side in sides) if all(sides) else ({}, {})
    names = list(dict.fromkeys([*first, *second]))
    texts = {
        "line": ("File", "Line", "Code"),
        "function": ("File", "Code"),
        "library": ("Library",),
    }[by]
    rows = [(*_texts(name, by), first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    table = pd.DataFrame(rows, columns=[*texts, *_SECONDS[:2]])
    table[_SECONDS[:2]] = table[_SECONDS[:2]].astype(float)
    if by == "line":
        table["Line"] = table["Line"].astype("Int64")
    table[_SECONDS[2]] = table[_SECONDS[1]] - table[_SECONDS[0]]
    order = np.argsort(-table[_SECONDS[2]].abs().to_numpy(), kind="stable")
    return table.take(order).reset_index(drop=True)


def compare_calls(before: Sequence[Run], after: Sequence[Run], least: float) -> pd.DataFrame:
    """List the calls of both sides as one tree; see `RunComparison.call_tree`."""
    sides = [_sampled(side) for side in (before, after)]
    first, second = (_calls(side) for side in sides) if all(sides) else ({}, {})
    whole = max(_total(first), _total(second))
    seconds = {path: (first.get(path, 0.0), second.get(path, 0.0)) for path in {**first, **second}}
    kept = {path: both for path, both in seconds.items() if max(both) >= least / 100 * whole}
    children: dict[_Path, list[_Path]] = {}
    for path in kept:
        children.setdefault(path[:-1], []).append(path)
    rows = []
    pending = sorted(children.get((), []), key=lambda path: max(kept[path]))
    while pending:
        path = pending.pop()
        rows.append((len(path) - 1, *path[-1], *kept[path], kept[path][1] - kept[path][0]))
        pending += sorted(children.get(path, []), key=lambda path: max(kept[path]))
    table = pd.DataFrame(rows, columns=["Depth", "Code", "File", *_SECONDS])
    return table.astype({"Depth": np.int64, **dict.fromkeys(_SECONDS, float)})


def _sampled(side: Sequence[Run]) -> list[Run]:
    """Return the runs of a side in which stacks of tasks were sampled."""
    return [trace for trace in side if len(trace.task_samples)]


def _places(side: Sequence[Run], by: By) -> dict[Hashable, float]:
    """Return the mean seconds in each place."""
    sums: dict[Hashable, float] = {}
    for trace in side:
        found = hot_places(trace, by=by)
        for name, seconds in zip(found.names, found.spent.seconds.tolist(), strict=True):
            sums[name] = sums.get(name, 0.0) + seconds / len(side)
    return sums


def _texts(name: Hashable, by: By) -> tuple[object, ...]:
    if by == "library":
        return (name or UNKNOWN,)
    if by == "line":
        known = isinstance(name, Frame)
        return (name.file, name.line, name.function) if known else (UNKNOWN, None, UNKNOWN)  # type: ignore[attr-defined]
    return name if isinstance(name, tuple) else (UNKNOWN, UNKNOWN)


def _calls(side: Sequence[Run]) -> dict[_Path, float]:
    """Return the mean seconds of each call, with what it calls."""
    sums: dict[_Path, float] = {}
    for trace in side:
        samples, _ = samples_of(trace)
        stacks = Groups(samples.stack, len(trace.stacks))
        tree = CallTree(all_stacks(trace), stacks.sum(samples.interval), stacks.sizes)
        path: list[Call] = []
        for call in tree.calls():
            path = [*path[: call.depth], call]
            name = tuple((each.function, each.file) for each in path)
            sums[name] = sums.get(name, 0.0) + call.seconds / len(side)
    return sums


def _total(calls: dict[_Path, float]) -> float:
    return sum(seconds for path, seconds in calls.items() if len(path) == 1)
