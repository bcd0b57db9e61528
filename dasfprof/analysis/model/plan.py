"""`Plan`: the layers of a run's graphs as nodes, and the data that they pass to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.critical_path import find_path
from dasfprof.analysis.model.links import DEPENDENCY, ResultsByKey, find_predecessors
from dasfprof.analysis.model.steps import groups_of, line_groups, number_layers, step_groups
from dasfprof.analysis.model.thread_time import recorded_column
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.times import to_ticks
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Plan:
    """The nodes of a run, in the order of their first start.

    A node is what one line and step of the program built of one graph layer, in one computation. If
    keys are texts, as for futures, all tasks of a function count as one layer.
    """

    #: Node of each slot of the trace with its unfinished task runs, and of each slot of the trace.
    of_all_slots: Array
    of_slots: Array
    #: Columns of nodes, numbered from 0.
    computation: Array
    function: list[str]
    step: list[str]
    line: list[str]

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True)
class PlanEdges:
    """Pairs of nodes of which one used results of the other, sorted by user and producer."""

    source: Array
    target: Array
    #: Bytes of the distinct results. NaN if unknown, or for a P2P shuffle, whose data moves between
    #: workers without being results.
    size: Array
    #: Task runs of the user that used any of them, and task runs that the critical path reaches
    #: from a run whose result they waited for.
    tasks: Array
    on_path: Array


@once_per_trace
def find_plan(run: Run) -> Plan:
    """Group the task runs into nodes."""
    all_runs, ended = run.whole, len(run.tasks)
    slots, unseen = all_runs.slots, run.unseen
    tables, count = (all_runs.tasks, unseen), len(all_runs.tasks)
    seen_by_scheduler = count + pd.Index(unseen.index).get_indexer(all_runs.unseen.index)
    rows_of_all = np.append(np.arange(count), seen_by_scheduler)
    rows_of_trace = np.append(np.arange(ended), count + np.arange(len(unseen)))

    def rows(name: str) -> Array:
        recorded = getattr(slots.times, name)[:count]
        return np.append(recorded, getattr(run.slots.times, name)[ended:])

    key_ids = np.append(all_runs.tasks["key_id"].to_numpy(), unseen["key_id"].to_numpy())
    of_function, functions = groups_of("function", "", tables)
    (of_step, steps), (of_line, lines) = step_groups(*tables), line_groups(*tables)
    parts = [
        (_computations(run, rows("arrival"), rows("known")), count + len(unseen) + 1),
        (number_layers(run.keys, key_ids, of_function), len(key_ids) + 1),
        (of_line, len(lines)),
        (of_step, len(steps)),
    ]
    codes = np.zeros(len(key_ids), dtype=np.int64)
    for part, size in parts:  # Renumber each time, so that no product overflows.
        codes = pd.factorize(codes * size + part)[0].astype(np.int64)
    # A run that was taken from its worker is still open there. It belongs to the computation in
    # which its key ended.
    last = np.full(len(run.keys), -1, dtype=np.int64)
    last[key_ids[:ended]] = codes[:ended]
    elsewhere = last[key_ids[ended:count]]
    codes[ended:count] = np.where(elsewhere >= 0, elsewhere, codes[ended:count])
    codes = pd.factorize(codes)[0].astype(np.int64)
    nodes = Groups(codes, int(codes.max(initial=-1)) + 1)
    order = np.argsort(nodes.min(rows("start")), kind="stable")
    codes, first = np.argsort(order)[codes], nodes.order[nodes.begins[:-1]][order]
    return Plan(
        codes[rows_of_all],
        codes[rows_of_trace],
        parts[0][0][first],
        *([names[of[row]] for row in first.tolist()]
          for of, names in ((of_function, functions), (of_step, steps), (of_line, lines))),
    )  # fmt: skip


def _computations(run: Run, arrival: Array, known: Array) -> Array:
    """Return the computation of each task run, from 0.

    A new computation starts with a graph that arrives when all earlier work has ended.
    """
    graphs = np.sort(to_ticks(run.since_begin(run.graphs["time"])))
    order = np.argsort(arrival, kind="stable")
    before = np.searchsorted(arrival[order], graphs)
    busy_until = np.append(-np.inf, np.fmax.accumulate(known[order]))[before]
    begins = graphs[(before > 0) & (busy_until <= graphs)]
    return np.unique(np.searchsorted(begins, arrival, side="right"), return_inverse=True)[1]


@once_per_trace
def find_edges(run: Run) -> PlanEdges:
    """Return the data that nodes pass to each other."""
    plan, slots = find_plan(run), run.slots
    lengths, items = run.task_dependencies
    ids = items.astype(np.int64)
    users = np.repeat(np.arange(len(lengths)), np.maximum(lengths, 0))
    starts = slots.times.start
    runs = ResultsByKey(
        run.of_slots("key_id").astype(np.int64), starts, np.arange(len(starts)), len(run.keys)
    )
    # The last run of a dependency that had started before its user, or the first run if clocks
    # differ.
    sources = runs.last_before(ids, np.nextafter(starts[users], -np.inf))
    sources = np.where(sources >= 0, sources, runs.first(ids))
    known = sources >= 0
    users, sources = users[known], sources[known]
    pairs = plan.of_slots[users] * len(plan) + plan.of_slots[sources]
    codes, distinct = pd.factorize(pairs, sort=True)
    edges, size = Groups(codes, len(distinct)), recorded_column(run, "size", len(starts), np.nan)
    once = ~pd.DataFrame({"edge": codes, "of": sources}).duplicated().to_numpy()
    handed = Groups(codes[once], len(distinct))
    sizes = size[sources[once]]
    unknown = handed.sizes > handed.known(sizes)
    takers = pd.DataFrame({"edge": codes, "by": users}).drop_duplicates()["edge"].to_numpy()
    target, source = np.divmod(distinct, max(len(plan), 1))
    shuffled = np.array([name == P2P_BARRIER for name in plan.function], dtype=bool)
    unknown |= shuffled[source] | shuffled[target]
    path = find_path(run).rows
    bound = find_predecessors(run).kind[path[1:]] == DEPENDENCY
    passed = plan.of_slots[path[1:]] * len(plan) + plan.of_slots[path[:-1]]
    return PlanEdges(
        source,
        target,
        np.where(unknown, np.nan, handed.sum(sizes)),
        Groups(takers, edges.count).sizes,
        Groups(pd.Index(distinct).get_indexer(passed[bound]), edges.count).sizes,
    )
