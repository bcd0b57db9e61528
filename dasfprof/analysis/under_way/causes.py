"""Finds why the work that a cluster has under way does not end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dasfprof.analysis.under_way import (
    children,
    failures,
    placement,
    primitives,
    processes,
    threads,
)
from dasfprof.analysis.under_way.cause import CERTAINTIES, Cause
from dasfprof.analysis.under_way.state import ClusterState

#: Each finds causes of one sort. Of equally grave ones the earlier function's come first.
FINDERS: tuple[Callable[[ClusterState], Iterator[Cause]], ...] = (
    processes.silent_scheduler,
    processes.dead_scheduler,
    primitives.lock_cycles,
    failures.killed_workers,
    failures.errors,
    placement.unmet_restrictions,
    placement.paused_workers,
    processes.silent_workers,
    processes.workers_lost_with_tasks,
    processes.blocked_loops,
    children.parents,
    placement.unknown_to_worker,
    primitives.held_locks,
    primitives.unset_signals,
    threads.sleeping_tasks,
    threads.running_tasks,
    threads.fetching_tasks,
    failures.clients_elsewhere,
)


def find_causes(state: ClusterState) -> list[Cause]:
    """Find why work does not end.

    Returns
    -------
    list of Cause
        What is certain or likely comes first, by the number of tasks that wait for it; then what
        is merely seen, in the same order. Empty if nothing is under way.
    """
    found = [cause for find in FINDERS for cause in find(state)]
    return sorted(found, key=_rank)  # a stable sort: equals stay in the order of their finders


def _rank(cause: Cause) -> tuple[bool, int, int]:
    return cause.certainty == "open", -cause.waiting, CERTAINTIES.index(cause.certainty)
