"""`find_causes`: why work does not end, how certain that is, and causes as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from dasfprof.analysis.under_way import primitives, processes, waiting_tasks
from dasfprof.analysis.under_way.state import CERTAINTIES, Cause, ClusterState

if TYPE_CHECKING:
    import pandas as pd


#: Each finds causes of one sort. Of equally grave ones the earlier function's come first.
FINDERS: tuple[Callable[[ClusterState], Iterator[Cause]], ...] = (
    processes.silent_scheduler,
    processes.dead_scheduler,
    primitives.lock_cycles,
    waiting_tasks.killed_workers,
    waiting_tasks.errors,
    waiting_tasks.unmet_restrictions,
    waiting_tasks.paused_workers,
    processes.silent_workers,
    processes.workers_lost_with_tasks,
    processes.blocked_loops,
    waiting_tasks.parents,
    waiting_tasks.unknown_to_worker,
    primitives.held_locks,
    primitives.unset_signals,
    processes.sleeping_tasks,
    processes.running_tasks,
    processes.fetching_tasks,
    waiting_tasks.clients_elsewhere,
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


#: Labels and the fields of a cause.
_COLUMNS = {
    "Certainty": "certainty",
    "Cause": "text",
    "Waiting Tasks": "waiting",
    "Time (s)": "seconds",
    "Function": "function",
    "Worker": "worker",
    "Line": "line",
    "Suggestion": "suggestion",
    "Evidence": "evidence",
    "Kind": "kind",
}


def causes_table(causes: Iterable[Cause]) -> pd.DataFrame:
    """Return a row for each cause, in their order."""
    import pandas as pd

    found = list(causes)
    frame = pd.DataFrame(
        {label: [getattr(cause, name) for cause in found] for label, name in _COLUMNS.items()},
        dtype=object,
    )
    return frame.astype({"Waiting Tasks": "int64", "Time (s)": "float64"})
