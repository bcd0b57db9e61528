"""Functions that read the tasks in progress and primitives of a live scheduler or worker.

Primitives are Dask's locks, events and queues.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import operator
import sys
import time
from itertools import islice
from types import FrameType
from typing import Any

from dasfprof.recording.dask_internals.inspection.stacks import (
    current_frames,
    frames_of_coroutine,
    frames_of_thread,
    stack_of,
    thread_state,
    wait_in,
)
from dasfprof.schema.under_way import UNFINISHED, unfinished_in, unmet
from dasfprof.system import thread_cpu

#: States of tasks that are counted.
COUNTED = (*UNFINISHED, "memory", "erred")

#: By function: number of tasks that succeeded, number of tasks that failed, and compute seconds of
#: the tasks that succeeded.
Finished = dict[str, tuple[Any, ...]]
OTHERS = "other functions"

#: Maximum numbers: functions, tasks that no worker may run, and keys of a worker or client.
MOST_FUNCTIONS, MOST_HELD_BACK, MOST_KEYS = 1000, 100, 20
#: Threshold: if a client wants more results, they are not searched for unfinished tasks.
MOST_WANTED = 1000


def scheduler_view(
    scheduler: Any, most_wanted: int = MOST_WANTED, before: Finished | None = None
) -> dict[str, Any]:
    """Return the work in progress on a scheduler, with the columns of the event `Scheduler State`.

    Parameters
    ----------
    most_wanted
        If a client wants more results than this, its number of unfinished tasks is None.
    before
        The tasks that had finished before the recording started. See `finished_tasks`.
    """
    tasks, unfinished = task_counts(scheduler)
    return {
        "tasks": tasks,
        "finished": finished_tasks(scheduler, before or {}),
        "unfinished": unfinished,
        "held_back": held_back(scheduler),
        "clients": [_client(client, most_wanted) for client in list(scheduler.clients.values())],
        "workers": [_worker(worker) for worker in list(scheduler.workers.values())],
        "primitives": primitives(scheduler),
    }


def task_counts(scheduler: Any) -> tuple[dict[str, dict[str, int]], int]:
    """Return the number of tasks by function and state, and the number of all unfinished tasks.

    If there are more than `MOST_FUNCTIONS` functions, those with unfinished tasks are preferred.
    """
    in_progress: dict[str, dict[str, int]] = {}
    ended: dict[str, dict[str, int]] = {}
    unfinished = 0
    for name, prefix in list(scheduler.task_prefixes.items()):
        known = prefix.states  # This property adds up the states of task groups.
        states = {state: known[state] for state in COUNTED if known.get(state)}
        number = unfinished_in([states])
        unfinished += number
        if states:
            (in_progress if number else ended)[str(name)] = states
    return dict([*ended.items(), *in_progress.items()][-MOST_FUNCTIONS:]), unfinished


def finished_tasks(scheduler: Any, before: Finished) -> Finished:
    """Return, for each function, how many tasks succeeded and failed, and their compute seconds.

    The figures in `before` are subtracted. If there are more than `MOST_FUNCTIONS` functions, the
    figures of the oldest ones are added up as `OTHERS`.
    """
    finished: Finished = {}
    for name, prefix in list(scheduler.task_prefixes.items()):
        seconds = prefix.all_durations.get("compute", 0.0)
        # Scattered data has no compute seconds, and does not count as tasks.
        done = prefix.state_counts.get("memory", 0) if seconds else 0
        counts = done, prefix.state_counts.get("erred", 0), seconds
        counts = tuple(map(operator.sub, counts, before.get(str(name), (0, 0, 0.0))))
        if any(counts):
            finished[str(name)] = counts
    for name in list(finished)[: max(0, len(finished) - MOST_FUNCTIONS)]:
        others = finished.get(OTHERS, (0, 0, 0.0))
        finished[OTHERS] = tuple(map(operator.add, others, finished.pop(name)))
    return finished


def held_back(scheduler: Any) -> list[dict[str, Any]]:
    """Return up to `MOST_HELD_BACK` tasks that no worker may run, and their restrictions."""
    unrunnable = scheduler.unrunnable
    to_unix = time.time() - time.monotonic()
    workers = {
        worker.address: (worker.host, worker.resources)
        for worker in (list(scheduler.workers.values()) if unrunnable else ())
    }
    return [
        {
            "key": str(task.key),
            "function": str(task.prefix.name),
            "since": unrunnable[task] + to_unix if isinstance(unrunnable, dict) else None,
            "restrictions": restricted,
            "unmet": unmet(restricted, workers),
        }
        for task in list(unrunnable)[:MOST_HELD_BACK]
        for restricted in [restrictions(task)]
    ]


def restrictions(task: Any) -> dict[str, Any]:
    """Return the workers, hosts and resources to which a task is restricted."""
    values = {
        "workers": sorted(map(str, task.worker_restrictions or ())),
        "hosts": sorted(map(str, task.host_restrictions or ())),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {name: value for name, value in values.items() if value}


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
        "keys": [str(getattr(x, "key", x)) for x in islice(worker.processing, MOST_KEYS)],
    }


#: Maximum number of returned tasks that have no thread.
MOST = 100


def tasks_under_way(worker: Any, older_than: float, cpu: dict[Any, float]) -> list[dict[str, Any]]:
    """Return the tasks that the worker has started but not finished, one dict per task.

    Parameters
    ----------
    older_than
        Tasks that have run for fewer seconds than this are left out.
    cpu
        The CPU seconds of a thread when its current task was first seen, by thread and key. This
        function updates the dict. The caller passes the same dict to each call.

    Returns
    -------
    list of dict
        ``key, run_id, state, since, thread, cpu, thread_state, stack, waits_in, waits_for,
        waits_keys``. These are columns of the event `TASK_UNDER_WAY`. ``stack`` is a
        `stacks.Stack`. It is empty for tasks that are fetching inputs.
    """
    now = time.time()
    in_threads = _threads(worker, cpu)
    rows = []
    for ident, (key, frames, seconds) in in_threads.items():
        if not _is_younger(worker, key, now - older_than):
            state = thread_state(ident)
            measured = {"thread": str(ident), "cpu": seconds, "thread_state": state}
            rows.append({**_row(worker, key, frames), **measured})
    keys = {key for key, *_ in in_threads.values()}
    rows += [*_coroutines(worker, keys, now - older_than), *_fetching(worker)]
    return rows


def _is_younger(worker: Any, key: Any, since: float) -> bool:
    """Return whether a task got its thread after the time `since`."""
    begin = getattr(worker.state.tasks.get(key), "start_time", None)
    return begin is not None and begin > since


def _threads(
    worker: Any, cpu: dict[Any, float]
) -> dict[int, tuple[Any, list[FrameType], float | None]]:
    """Return the task's key, the frames and the CPU seconds of each thread that runs a task.

    The CPU seconds count from the first call that saw the task. They are None if unknown. For
    `cpu`, see `tasks_under_way`.
    """
    begin = getattr(importlib.import_module("distributed.worker"), "_run_task_simple", None)
    code = getattr(inspect.unwrap(begin), "__code__", None) if begin is not None else None
    tasks = {}
    # Until this lock is released, no task can end, and neither can its thread. CPU seconds can only
    # be read from threads that exist.
    with worker.active_threads_lock:
        active = dict(worker.active_threads)
        frames = current_frames() if active else {}
        for ident, key in active.items():
            used = thread_cpu(ident)
            seconds = None if used is None else used - cpu.setdefault((ident, key), used)
            tasks[ident] = key, frames_of_thread(frames.get(ident), code), seconds
    for thread, key in [item for item in cpu if active.get(item[0]) != item[1]]:
        del cpu[thread, key]
    return tasks


def _row(worker: Any, key: Any, frames: list[FrameType]) -> dict[str, Any]:
    task = worker.state.tasks.get(key)
    kind, name, keys = wait_in(frames) or (None, None, [])
    return {
        "key": key,
        "run_id": getattr(task, "run_id", -1),
        "state": "cancelled" if task is None else str(task.state),
        "since": getattr(task, "start_time", None),
        "thread": None,
        "cpu": None,
        "thread_state": None,
        "stack": stack_of(frames),
        "waits_in": kind,
        "waits_for": name,
        "waits_keys": keys,
    }


def _coroutines(worker: Any, in_threads: set[Any], since: float) -> list[dict[str, Any]]:
    """Return the coroutine tasks on the worker's event loop, except those started after `since`.

    `in_threads` has the keys of tasks that run in threads, which are left out.
    """
    keys = [
        key
        for key in [getattr(task, "key", task) for task in list(worker.state.executing)]
        if key not in in_threads and not _is_younger(worker, key, since)
    ]
    if not keys:
        return []
    loop = getattr(worker.loop, "asyncio_loop", None)
    try:
        tasks = {task.get_name(): task for task in asyncio.all_tasks(loop)}
    except RuntimeError:  # No event loop runs, or its tasks have changed meanwhile.
        tasks = {}
    rows = []
    for key in keys[:MOST]:
        task = tasks.get(f"execute({key!r})")
        frames = frames_of_coroutine(task.get_coro()) if task is not None else []
        names = [frame.f_code.co_name for frame in frames]
        # Leave out the frames of Dask around the task.
        begin = names.index("_run_task_async") + 1 if "_run_task_async" in names else 0
        rows.append(_row(worker, key, frames[begin:]))
    return rows


def _fetching(worker: Any) -> list[dict[str, Any]]:
    """Return the tasks that wait until their inputs arrive."""
    rows = []
    for task in list(getattr(worker.state, "waiting", ()))[:MOST]:
        row = _row(worker, task.key, [])
        inputs = [needed.key for needed in list(task.waiting_for_data)]
        rows.append({**row, "state": "fetching", "since": None, "waits_keys": inputs[:MOST]})
    return rows


def held_locks(worker: Any, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the locks and semaphores that this process holds.

    `tasks` has the tasks in progress (see `tasks_under_way`).

    Returns
    -------
    list of dict
        ``kind, name``, the ``keys`` of the tasks that may hold the lock, and ``certain`` (whether
        it is known which task holds the lock). Before Python 3.13, ``keys`` has all running tasks.
    """
    # The search visits all objects of the process, which takes about 10 ms per million objects.
    held = [
        item
        for item in gc.get_objects()
        if type(item).__name__ in ("Lock", "Semaphore")
        and type(item).__module__ in ("distributed.lock", "distributed.semaphore")
        and getattr(item, "_leases", None)
    ]
    owners: dict[int, list[Any]] = {}
    # Since this version, reading a frame's variables has no side effects.
    if held and sys.version_info >= (3, 13):
        for key, frames, _ in _threads(worker, {}).values():
            for frame in frames:
                for value in list(frame.f_locals.values()):
                    owners.setdefault(id(value), []).append(key)
    running = [row["key"] for row in tasks if row["thread"] is not None]
    return [
        {
            "kind": type(item).__name__,
            "name": str(item.name),
            "keys": owners.get(id(item)) or running,
            "certain": len(set(owners.get(id(item), ()))) == 1,
        }
        for item in held
    ]


#: Maximum number of primitives per kind.
MOST_PRIMITIVES = 200


def primitives(scheduler: Any) -> list[dict[str, Any]]:
    """Return a dict for each primitive of Dask that is held or waited for, or has items."""
    extensions = getattr(scheduler, "extensions", {})
    return [
        primitive
        for name, read in _PRIMITIVES.items()
        if extensions.get(name) is not None
        for primitive in read(extensions[name])
    ]


# Some attributes of Dask's extensions create entries when they are indexed. So they are read with
# `get`.


def _semaphores(extension: Any) -> list[dict[str, Any]]:
    pending = extension.metrics.get("pending", {})
    return [
        {
            "kind": "Semaphore",  # Also for a Lock, which is a semaphore with a single lease.
            "name": str(name),
            "limit": limit,
            "holders": list(extension.leases.get(name, ())),
            "waiting": pending.get(name, 0),
        }
        for name, limit in list(extension.max_leases.items())[:MOST_PRIMITIVES]
        if extension.leases.get(name) or pending.get(name)
    ]


def _events(extension: Any) -> list[dict[str, Any]]:
    waiting = extension._waiter_count
    return [
        {"kind": "Event", "name": str(name), "waiting": waiting[name], "set": event.is_set()}
        for name, event in list(extension._events.items())[:MOST_PRIMITIVES]
        if waiting.get(name)
    ]


def _queues(extension: Any) -> list[dict[str, Any]]:
    return [
        {
            "kind": "Queue.put" if queue._putters else "Queue.get",
            "name": str(name),
            "waiting": len(queue._getters) + len(queue._putters),
            "items": queue.qsize(),
            "limit": queue.maxsize,
        }
        for name, queue in list(extension.queues.items())[:MOST_PRIMITIVES]
        if queue._getters or queue._putters or queue.qsize()
    ]


def _multi_locks(extension: Any) -> list[dict[str, Any]]:
    return [
        {
            "kind": "MultiLock",
            "name": str(name),
            "holders": [str(user) for user in users[:1]],
            "waiting": len(users) - 1,
            "limit": 1,
        }
        for name, users in list(extension.locks.items())[:MOST_PRIMITIVES]
        if users
    ]


_PRIMITIVES = {
    "semaphores": _semaphores,
    "events": _events,
    "queues": _queues,
    "multi_locks": _multi_locks,
}
