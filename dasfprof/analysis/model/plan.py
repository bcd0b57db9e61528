"""`Plan`: the layers of a run's graphs as nodes, and the data that flows between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasfprof.analysis.model.critical_path import find_path
from dasfprof.analysis.model.links import DEPENDENCY, dependency_rows, find_predecessors
from dasfprof.analysis.model.steps import groups_of, line_groups, number_layers, step_groups
from dasfprof.analysis.model.thread_time import recorded_column
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.task_runs import to_ticks
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Plan:
    """The nodes of a run, in the order of their first start.

    A node contains the task runs with the same graph layer, computation, source line and step. If
    keys are texts, as for futures, all tasks of a function count as one layer.
    """

    #: Node of each slot: for the slots of the trace including unfinished task runs, and for the
    #: slots of the trace without them.
    of_all_slots: Array
    of_slots: Array
    #: One value per node. Computations are numbered from 0.
    computation: Array
    function: list[str]
    step: list[str]
    line: list[str]

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True)
class PlanEdges:
    """Pairs of nodes: task runs of `target` used results of `source`.

    They are sorted by target and source.
    """

    source: Array
    target: Array
    #: Bytes of the distinct results that were used. NaN if unknown, and for P2P shuffles, which
    #: move their data between workers without making it a result.
    size: Array
    #: Number of task runs of `target` that used any of the results. Then number of those that the
    #: critical path reaches directly from a task run of `source`.
    tasks: Array
    on_path: Array


@once_per_trace
def find_plan(run: Run) -> Plan:
    """Return the nodes of a run, and the node of each task run."""
    tables, count, ended = (run.task_runs, run.unseen), len(run.task_runs), len(run.tasks)
    times, key_ids = run.all_slots.times, run.of_slots("key_id", unfinished=True)
    of_function, functions = groups_of("function", "", tables)
    (of_step, steps), (of_line, lines) = step_groups(*tables), line_groups(*tables)
    parts = [
        (_computations(run, times.arrival, times.known), len(key_ids) + 1),
        (number_layers(run, key_ids, of_function), len(key_ids) + 1),
        (of_line, len(lines)),
        (of_step, len(steps)),
    ]
    codes = np.zeros(len(key_ids), dtype=np.int64)
    for part, size in parts:  # Renumber each time, so that no product overflows.
        codes = pd.factorize(codes * size + part)[0].astype(np.int64)
    # A task run that was taken away from its worker remains unfinished there. It belongs to the
    # computation in which another run of its key ended.
    last = np.full(len(run.keys), -1, dtype=np.int64)
    last[key_ids[:ended]] = codes[:ended]
    elsewhere = last[key_ids[ended:count]]
    codes[ended:count] = np.where(elsewhere >= 0, elsewhere, codes[ended:count])
    codes = pd.factorize(codes)[0].astype(np.int64)
    nodes = Groups(codes, int(codes.max(initial=-1)) + 1)
    order = np.argsort(nodes.min(times.start), kind="stable")
    codes, first = np.argsort(order)[codes], nodes.order[nodes.begins[:-1]][order]
    return Plan(
        codes,
        np.delete(codes, np.arange(ended, count)),
        parts[0][0][first],
        *([names[of[row]] for row in first.tolist()]
          for of, names in ((of_function, functions), (of_step, steps), (of_line, lines))),
    )  # fmt: skip


def _computations(run: Run, arrival: Array, known: Array) -> Array:
    """Return the index of each task run's computation, from 0.

    A graph begins a new computation if all earlier work has ended when the graph arrives.
    """
    graphs = np.sort(to_ticks(run.since_begin(run.graphs["time"])))
    order = np.argsort(arrival, kind="stable")
    before = np.searchsorted(arrival[order], graphs)
    busy_until = np.append(-np.inf, np.fmax.accumulate(known[order]))[before]
    begins = graphs[(before > 0) & (busy_until <= graphs)]
    return np.unique(np.searchsorted(begins, arrival, side="right"), return_inverse=True)[1]


@once_per_trace
def find_edges(run: Run) -> PlanEdges:
    """Return the pairs of nodes between which data flows."""
    plan, (users, sources) = find_plan(run), dependency_rows(run)
    pairs = plan.of_slots[users] * len(plan) + plan.of_slots[sources]
    codes, distinct = pd.factorize(pairs, sort=True)
    edges = Groups(codes, len(distinct))
    size = recorded_column(run.tasks, "size", len(run.slots.worker), np.nan)
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
