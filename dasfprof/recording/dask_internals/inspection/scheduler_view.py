"""What a live scheduler has under way."""

from __future__ import annotations

import time
from typing import Any

from dasfprof.recording.dask_internals.inspection import primitives

#: The states of tasks that are counted, and those that have not ended.
COUNTED = ("waiting", "no-worker", "queued", "processing", "memory", "erred")
UNFINISHED = COUNTED[:4]

#: The most functions, tasks that are held back, and keys of a worker or client.
MOST_FUNCTIONS, MOST_HELD_BACK, MOST_KEYS = 1000, 100, 20
#: A client's results are looked through for unfinished ones up to so many.
MOST_WANTED = 1000


def scheduler_view(scheduler: Any, most_wanted: int = MOST_WANTED) -> dict[str, Any]:
    """Return what a scheduler has under way: the columns of the event `Scheduler State`.

    Parameters
    ----------
    scheduler
        The scheduler.
    most_wanted
        A client with more results than that has unknown numbers of unfinished ones (None).
    """
    tasks, unfinished = task_counts(scheduler)
    return {
        "tasks": tasks,
        "unfinished": unfinished,
        "held_back": held_back(scheduler),
        "clients": [_client(client, most_wanted) for client in list(scheduler.clients.values())],
        "workers": [_worker(worker) for worker in list(scheduler.workers.values())],
        "primitives": primitives.primitives(scheduler),
    }


def task_counts(scheduler: Any) -> tuple[dict[str, dict[str, int]], int]:
    """Return the number of tasks by function and state, and of those that have not ended.

    Of too many functions, those without an unfinished task are left out, the first ones first.
    """
    open_functions: dict[str, dict[str, int]] = {}
    ended: dict[str, dict[str, int]] = {}
    unfinished = 0
    for name, prefix in list(scheduler.task_prefixes.items()):
        kept = {state: number for state, number in prefix.states.items() if number}
        if not kept:
            continue
        here = sum(kept.get(state, 0) for state in UNFINISHED)
        unfinished += here
        kept = {state: kept[state] for state in COUNTED if state in kept}
        if kept:
            (open_functions if here else ended)[str(name)] = kept
    room = max(0, MOST_FUNCTIONS - len(open_functions))
    counts = {**dict(list(ended.items())[len(ended) - room :]), **open_functions}
    return dict(list(counts.items())[-MOST_FUNCTIONS:]), unfinished


def held_back(scheduler: Any) -> list[dict[str, Any]]:
    """Return the first tasks that no worker may run, and what they ask that no worker has."""
    unrunnable = scheduler.unrunnable
    to_unix = time.time() - time.monotonic()
    return [
        {
            "key": str(task.key),
            "function": str(task.prefix.name),
            "since": unrunnable[task] + to_unix if isinstance(unrunnable, dict) else None,
            "restrictions": restrictions(task),
            "unmet": unmet(task, scheduler),
        }
        for task in list(unrunnable)[:MOST_HELD_BACK]
    ]


def restrictions(task: Any) -> dict[str, Any]:
    """Return the workers, hosts and resources that a task is restricted to."""
    asked = {
        "workers": sorted(map(str, task.worker_restrictions or ())),
        "hosts": sorted(map(str, task.host_restrictions or ())),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {name: value for name, value in asked.items() if value}


def unmet(task: Any, scheduler: Any) -> str:
    """Return in words which restriction of a task no worker meets; empty if it is none of them."""
    workers = list(scheduler.workers.values())
    if not workers:
        return "there is no worker"
    asked = restrictions(task)
    addresses = set(asked.get("workers", ()))
    if addresses and not addresses & {worker.address for worker in workers}:
        return f"no worker {', '.join(sorted(addresses))}"
    hosts = set(asked.get("hosts", ()))
    if hosts and not hosts & {worker.host for worker in workers}:
        return f"no worker on {', '.join(sorted(hosts))}"
    for resource, amount in asked.get("resources", {}).items():
        most = max((worker.resources.get(resource, 0) for worker in workers), default=0)
        if most < amount:
            return f"no worker has {resource}={amount:g}; the most that one has is {most:g}"
    return "no worker meets all of them at once" if asked else ""


def _client(client: Any, most_wanted: int) -> dict[str, Any]:
    wanted = client.wants_what
    open_keys = None
    if len(wanted) <= most_wanted:
        open_keys = [str(task.key) for task in list(wanted) if task.state in UNFINISHED]
    return {
        "client": client.client_key,
        "wanted": len(wanted),
        "unfinished": None if open_keys is None else len(open_keys),
        "last_seen": client.last_seen,
        "keys": (open_keys or [])[:MOST_KEYS],
    }


def _worker(worker: Any) -> dict[str, Any]:
    memory = getattr(worker, "memory", None)
    keys: list[str] = []
    for task in worker.processing:
        keys.append(str(getattr(task, "key", task)))
        if len(keys) == MOST_KEYS:
            break
    return {
        "worker": worker.address,
        "name": str(worker.name),
        "status": worker.status.name,
        "last_seen": worker.last_seen,
        "threads": worker.nthreads,
        "processing": len(worker.processing),
        "executing": len(worker.executing),
        "occupancy": getattr(worker, "_occupancy_cache", None),
        "memory": getattr(memory, "process", None),
        "memory_limit": worker.memory_limit or None,
        "keys": keys,
    }
