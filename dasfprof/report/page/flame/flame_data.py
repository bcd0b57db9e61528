"""The flame graphs of a page: `FlameData`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.steps import has_steps, step_groups
from dasfprof.analysis.stack_samples.flame_tree import FlameTree, Name, StackTree, flame_tree
from dasfprof.analysis.stack_samples.loop_blocks import in_the_loop
from dasfprof.analysis.stack_samples.places import all_stacks, library_of
from dasfprof.analysis.stack_samples.spent import Parts, parts_of
from dasfprof.analysis.stack_samples.task_samples import Samples, run_of_samples, samples_of
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.under_way.lines import is_of_user
from dasfprof.analysis.under_way.state import Frame
from dasfprof.database.columns import Array
from dasfprof.report.page.flame.line_data import STEP, LineData
from dasfprof.report.page.packing import (
    PackedColumn,
    in_group,
    offsets,
    seconds,
    texts,
    whole_numbers,
)


@dataclass(frozen=True)
class FlameData:
    """What the page's flame graphs are drawn from: a tree of calls a view."""

    #: By name, with the view's before it.
    columns: dict[str, PackedColumn]
    #: ``views``: a dict each with its ``name`` and ``title``, its ``seconds``, ``samples``, and how
    #: many calls were left out; ``lines``: see `LineData`.
    facts: dict[str, Any]

    @classmethod
    def of(cls, trace: Trace, rows: Array) -> FlameData:
        """Make the columns.

        Parameters
        ----------
        trace
            The trace.
        rows
            The row of the tasks of `with_open_runs` that each row of the page is about.
        """
        samples, functions = samples_of(trace)
        parts = parts_of(samples, functions)
        lines = LineData.of(trace, rows, samples.stack, functions, parts)
        columns: dict[str, PackedColumn] = dict(lines.columns)
        views = []
        names: dict[Name, int] = {}
        for name, title, tree, number in _views(trace, samples.stack, functions, parts):
            columns |= in_group(f"flame-{name}", _packed(tree, names))
            facts = {"seconds": tree.seconds, "samples": number, "omitted": tree.omitted}
            views.append({"name": name, "title": title, **facts})
        listed = texts([[*name, _origin(name)] for name in names])
        columns |= in_group("flames", {"names": listed})
        return cls(columns, {"views": views, "lines": lines.facts})


def _views(
    trace: Trace, stacks: Array, functions: Array, parts: Parts
) -> Iterator[tuple[str, str, FlameTree, int]]:
    """Return name, title, tree and number of samples of each view that has any."""
    if len(trace.task_samples):
        stacks, parts, groups = _of_tasks(trace, stacks, functions, parts)
        calls = StackTree(all_stacks(trace))
        for by, (codes, names) in groups.items():
            yield (
                by,
                f"Tasks by {by}",
                flame_tree(calls, codes, names, stacks, parts),
                len(trace.task_samples),
            )
    if len(trace.client_samples):
        table = trace.client_samples
        phases = table["phase"].astype("category").cat
        found = Samples.of(table)
        tree = flame_tree(
            StackTree(all_stacks(trace)),
            phases.codes.to_numpy(dtype=np.int64),
            [str(phase) for phase in phases.categories],
            found.stack,
            parts_of(found, np.zeros(len(found), dtype=np.int64)),
        )
        yield "client", "Client", tree, len(table)
    table = trace.loop_samples
    table = table[table["until"].isna()] if len(table) else table
    if len(table):
        found, workers = Samples.of(table), table["worker_id"].to_numpy(dtype=np.int64)
        labels = trace.workers["worker"].astype(object).tolist()
        loops = StackTree([in_the_loop(stack) for stack in all_stacks(trace)])
        tree = flame_tree(loops, workers, labels, found.stack, parts_of(found, workers))
        yield "loops", "Event loops", tree, len(table)


def _of_tasks(
    trace: Trace, stacks: Array, functions: Array, parts: Parts
) -> tuple[Array, Parts, dict[str, tuple[Array, list[str]]]]:
    """Return stacks and seconds of samples that differ in nothing else, and their groups."""
    tasks, runs = with_open_runs(trace).tasks, run_of_samples(trace)
    groups: dict[str, tuple[Array, list[str]]] = {}
    if "function" in tasks:
        groups["function"] = functions - 1, list(map(str, tasks["function"].cat.categories))
    if has_steps(trace):
        codes, steps = step_groups(tasks)
        groups["step"] = np.r_[codes, -1][runs], steps
    workers = trace.task_samples["worker_id"].to_numpy(dtype=np.int64)
    groups["worker"] = workers, trace.workers["worker"].astype(object).astype(str).tolist()
    alike = stacks + 1
    for codes, names in groups.values():
        alike = alike * (len(names) + 1) + codes + 1
    places, distinct = pd.factorize(alike)
    first = np.zeros(len(distinct), dtype=np.int64)
    first[places] = np.arange(len(places))
    taken = {by: (codes[first], names) for by, (codes, names) in groups.items()}
    return stacks[first], parts.summed(places, len(distinct)), taken


def _origin(name: Name) -> str:
    """Return the library that a function is of; empty: the program's own, or a group."""
    frame = Frame(*name, 0)
    return "" if not name.file or is_of_user(frame) else library_of(name.file)


def _packed(tree: FlameTree, names: dict[Name, int]) -> dict[str, PackedColumn]:
    """Pack the columns of a tree; functions that are new get numbers."""
    numbers = [names.setdefault(name, len(names)) for name in tree.names]
    spent, lines = tree.spent, tree.line_spent
    amounts = {
        "seconds": spent.seconds,
        "own": tree.own_seconds,
        "computing": spent.computing,
        "core": spent.core_wait,
        "lock": spent.lock_wait,
        "uncertain": spent.uncertain,
        "line_seconds": lines.seconds,
        "line_computing": lines.computing,
        "line_core": lines.core_wait,
        "line_lock": lines.lock_wait,
        "line_uncertain": lines.uncertain,
    }
    return {
        "depths": whole_numbers(tree.depths),
        "functions": whole_numbers(np.array(numbers, dtype=np.int64)[tree.functions]),
        "first_lines": offsets(tree.line_counts),
        "lines": whole_numbers(tree.lines),
        **{name: seconds(values, step=STEP) for name, values in amounts.items()},
    }
