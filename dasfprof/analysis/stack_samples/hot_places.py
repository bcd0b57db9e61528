"""`hot_places`: the lines, functions or libraries in which task runs spent their time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.run import AnyRun, run_of
from dasfprof.analysis.stack_samples.places import By, Places, all_stacks, line_of, places
from dasfprof.analysis.stack_samples.spent import Spent, spent
from dasfprof.analysis.stack_samples.task_samples import samples_of
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class HotPlaces:
    """Places, the longest first."""

    #: See `places`; None: unknown.
    names: list[Hashable]
    spent: Spent
    #: Of lines: the library's call in which most of the time was spent; empty: in none.
    inside: list[str]


def hot_places(
    source: AnyRun, function: str | None = None, step: str | None = None, by: By = "line"
) -> HotPlaces:
    """Return where the task runs of a function and a step were seen; None: of all."""
    run = run_of(source)
    samples, functions = samples_of(run, function, step)
    named = places(run, by)
    codes, count = named.of(samples.stack), len(named.names)
    found = spent(samples, codes, count, functions)
    order = np.argsort(-found.seconds, kind="stable")
    order = order[found.samples[order] > 0]
    inside = _inside(run.trace, samples.stack, samples.interval, named) if by == "line" else {}
    return HotPlaces(
        [named.names[row] for row in order.tolist()],
        found.take(order),
        [inside.get(row, "") for row in order.tolist()],
    )


def _inside(trace: Trace, stacks: Array, seconds: Array, lines: Places) -> dict[int, str]:
    """Return for each line the library's call in which most of its time was spent."""
    frames, seen = all_stacks(trace), stacks[stacks >= 0]
    by_stack = np.bincount(seen, seconds[stacks >= 0], len(frames))
    totals: dict[int, dict[str, float]] = {}
    for stack in np.unique(seen).tolist():
        if frames[stack]:
            total = totals.setdefault(int(lines.of(np.array([stack]))[0]), {})
            words = line_of(frames[stack])[1]
            total[words] = total.get(words, 0.0) + float(by_stack[stack])
    return {line: max(total.items(), key=lambda item: item[1])[0] for line, total in totals.items()}
