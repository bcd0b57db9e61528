"""Causes: tasks that no worker may run, and workers that take none."""

from __future__ import annotations

from collections.abc import Iterator

from dasfprof.analysis.under_way.cause import Cause
from dasfprof.analysis.under_way.lines import name_some
from dasfprof.analysis.under_way.state import ClusterState, HeldBackTask
from dasfprof.text import count_of, format_duration, format_size

#: Seconds that a cluster without workers may take to get some.
_STARTING = 60.0


def unmet_restrictions(state: ClusterState) -> Iterator[Cause]:
    """Find tasks with a restriction that no worker meets."""
    groups: dict[tuple[str, str], list[HeldBackTask]] = {}
    for task in state.held_back:
        groups.setdefault((task.unmet, task.function), []).append(task)
    for (unmet, function), tasks in groups.items():
        if not unmet:
            continue
        seconds = min((task.seconds for task in tasks if task.seconds is not None), default=None)
        since = f" since {format_duration(seconds)}" if seconds is not None else ""
        empty = not state.workers
        total = state.counts.get(function, {}).get("no-worker", len(tasks))
        asked = ", ".join(f"{name} {value}" for name, value in tasks[0].restrictions.items())
        yield Cause(
            "no-worker",
            "open" if empty and (seconds or 0.0) < _STARTING else "certain",
            f"{count_of(total, 'task')} of {function} cannot run{since}: {unmet}.",
            f"{name_some([task.key for task in tasks])}"
            f"{f' ask for {asked}' if asked else ''}; the cluster has "
            f"{count_of(len(state.workers), 'worker')}.",
            "Start a worker that has what they ask for, or ask for what there is (resources=, "
            "workers=, annotations). Dask waits without an end and without a message.",
            keys=tuple(task.key for task in tasks),
            waiting=total,
            function=function,
            seconds=seconds,
        )


def paused_workers(state: ClusterState) -> Iterator[Cause]:
    """Find that all workers are paused, so that none starts a task."""
    workers = [worker for worker in state.workers if worker.status != "lost"]
    paused = [worker for worker in workers if worker.status == "paused"]
    if not paused or len(paused) < len(workers) or not state.unfinished:
        return
    known = [w for w in paused if w.memory is not None and w.memory_limit]
    usage = ", ".join(
        f"{w.worker} {format_size(w.memory or 0)} of {format_size(w.memory_limit or 0)}"
        for w in known[:3]
    )
    yield Cause(
        "all-paused",
        "certain",
        f"All {count_of(len(paused), 'worker')} of the cluster are paused for memory, and "
        f"{count_of(state.unfinished, 'task')} wait.",
        f"Memory: {usage or 'unknown'}.",
        "Free results that are no longer needed (del futures, smaller chunks), raise memory_limit, "
        "or add workers. A leak outside of Dask's results is not spilled.",
        waiting=state.unfinished,
    )


def unknown_to_worker(state: ClusterState) -> Iterator[Cause]:
    """Find tasks that are processing on a worker which knows nothing of them."""
    for worker in state.workers:
        if worker.known is None or not worker.answered:
            continue
        missing = [key for key in worker.processing_keys if key not in worker.known]
        if missing:
            yield Cause(
                "views-differ",
                "likely",
                f"The scheduler waits for {count_of(len(missing), 'task')} on {worker.worker} that "
                "the worker knows nothing of.",
                f"The scheduler: {name_some(missing)} processing on {worker.address}. The worker: "
                f"{count_of(len(worker.known), 'task')}, none of these.",
                "A message between them was lost: retire or restart that worker, and its tasks are "
                "sent anew. Report it to Dask with a dump (Client.dump_cluster_state).",
                keys=tuple(missing),
                waiting=len(missing),
                worker=worker.worker,
            )
