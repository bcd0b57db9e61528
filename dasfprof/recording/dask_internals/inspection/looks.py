"""Functions that take a snapshot of a cluster: the work in progress on its scheduler and workers.

The scheduler asks each worker separately, with a time limit. So a worker that does not answer does
not delay the answers of other workers. If a worker does not answer, its nanny reports the state of
the worker's process. If the worker has no nanny and is on the scheduler's host, the scheduler
reports the state.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from itertools import chain, islice
from typing import Any

from distributed import rpc
from distributed.comm import get_address_host_port
from distributed.protocol.pickle import dumps

from dasfprof.recording.dask_internals.inspection.processes import process_state, state_of_listener
from dasfprof.recording.dask_internals.inspection.stacks import core_waits, frames_of_coroutine
from dasfprof.recording.dask_internals.inspection.views import (
    MOST_KEYS,
    held_locks,
    scheduler_view,
    tasks_under_way,
)

#: Threshold (seconds): if a worker has not answered after this time, its process is examined.
_PATIENCE = 0.3
#: Maximum number of tasks for which a worker reports the state, in addition to the tasks that the
#: scheduler names.
_MOST_KNOWN = 200
#: Maximum number of the newest transitions that are searched for the last start or end of a task.
_MOST_TRANSITIONS = 10_000
#: Maximum number of failed tasks that are returned, and of counted dependents of a failed task.
_MOST_FAILED, _MOST_DEPENDENTS = 20, 100_000


def look_at_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    """Return the work in progress on a scheduler.

    Returns
    -------
    dict
        The entries of `scheduler_view`, and ``time``, ``quiet`` (seconds since a task started or
        ended, or None if unknown), ``failed`` and ``runs``. ``failed`` lists the tasks that failed
        and are not retried, as dicts with ``key, function, message, worker, dependents``. ``runs``
        has the directory and the id of each run that is being recorded.
    """
    return {
        **scheduler_view(dask_scheduler),
        "time": time.time(),
        "quiet": _quiet(dask_scheduler),
        "failed": _failed(dask_scheduler),
        "runs": [
            (str(plugin.settings.directory), str(plugin.settings.uuid))
            for name, plugin in dask_scheduler.plugins.items()
            if str(name).startswith("dasfprof-") and hasattr(plugin, "settings")
        ],
    }


def _quiet(scheduler: Any) -> float | None:
    for entry in islice(reversed(scheduler.transition_log), _MOST_TRANSITIONS):
        _, start, finish, *_, timestamp = entry
        if "processing" in (start, finish):
            return max(0.0, time.time() - float(timestamp))
    return None


def _failed(scheduler: Any) -> list[dict[str, Any]]:
    failed: dict[Any, dict[str, Any]] = {}
    for entry in list(getattr(scheduler, "erred_tasks", ())):
        task = scheduler.tasks.get(entry.key)
        if task is None or task.state != "erred" or task.exception_blame is not task:
            continue
        # If Dask abandons a task, it stores a pickled exception without text.
        died = task.suspicious
        killed = f"KilledWorker, as {died} workers died while they ran it" if died else ""
        if len(failed) < _MOST_FAILED and task.key not in failed:
            failed[task.key] = {
                "key": str(task.key),
                "function": str(task.prefix.name),
                "message": str(task.exception_text or entry.exception_text or killed),
                "worker": next(iter(task.erred_on or ()), None),
                "dependents": _dependents(task),
            }
    return list(failed.values())


def _dependents(failed: Any) -> int | None:
    """Return how many tasks never run because `failed` failed, or None if there are too many."""
    seen = {failed}
    pending = [failed]
    while pending:
        for task in pending.pop().dependents:
            if task not in seen and task.exception_blame is failed:
                seen.add(task)
                pending.append(task)
        if len(seen) > _MOST_DEPENDENTS:
            return None
    return len(seen) - 1


async def look_at_workers(
    look: bytes, look_at_process: bytes, pause: float, limit: float, dask_scheduler: Any
) -> dict[str, dict[str, Any]]:
    """Ask all workers at the same time for their work in progress.

    Parameters
    ----------
    look, look_at_process
        The pickled functions `look_at_worker` and `state_of_nannys_process`.
    pause
        Seconds between two snapshots of a worker.
    limit
        Seconds to wait for each process.

    Returns
    -------
    dict
        A dict for each worker, by the worker's address. If the worker answered, the worker's dict
        has ``view`` (see `look_at_worker`). Otherwise, it has ``silence`` (the reason) and, if
        known, ``process`` (the state of the worker's process, see `processes.process_state`) and
        the process's ``host``.
    """

    async def ask(worker: Any) -> dict[str, Any]:
        keys = list(islice((getattr(task, "key", task) for task in worker.processing), MOST_KEYS))
        view = asyncio.ensure_future(
            _call(worker.address, dask_scheduler, look, (keys, pause), limit)
        )
        await asyncio.wait({view}, timeout=pause + _PATIENCE)
        process = {}
        if not view.done() or view.exception() is not None:
            process = await _process_of(worker, dask_scheduler, look_at_process, limit)
        try:
            return {"view": await view}
        except Exception as error:
            return {"silence": f"{type(error).__name__}: {error}", **process}

    workers = list(dask_scheduler.workers.values())
    answers = await asyncio.gather(*map(ask, workers))
    return {
        worker.address: answer
        for worker, answer in zip(workers, answers, strict=True)
        if worker.address in dask_scheduler.workers
    }


async def within(limit: float, call: Coroutine[Any, Any, Any]) -> Any:
    """Wait for a call for at most `limit` seconds, even if the call ignores its cancellation.

    Raises
    ------
    asyncio.TimeoutError
        If the call takes longer.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    finally:
        if not task.done():
            # If the connection were not aborted, Dask would log a warning.
            for frame in frames_of_coroutine(task.get_coro()):
                abort = getattr(frame.f_locals.get("comm"), "abort", None)
                if abort is not None:
                    abort()
            # If nobody retrieved the exception, asyncio would log it.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            task.cancel()
    if not done:
        raise asyncio.TimeoutError(f"no answer in {limit:g} s")
    return task.result()


async def request(address: str, connection_args: Any, handler: str, **message: Any) -> Any:
    """Send a message to a handler of a process of the cluster, and return the answer."""
    async with rpc(address, connection_args=connection_args) as process:
        return await getattr(process, handler)(**message)


async def _call(
    address: str, scheduler: Any, function: bytes, args: tuple[Any, ...], limit: float
) -> Any:
    """Run a pickled function in another process of the cluster, and return its result."""
    message = {"function": function, "args": dumps(args)}
    call = request(address, scheduler.connection_args, "run", **message)
    response = await within(limit, call)
    if response["status"] == "error":
        raise RuntimeError(response.get("exception_text", "unknown"))
    return response["result"]


async def _process_of(worker: Any, scheduler: Any, look: bytes, limit: float) -> dict[str, Any]:
    try:
        if worker.nanny:
            return await _call(worker.nanny, scheduler, look, (), limit)
        state = await state_of_listener(
            getattr(worker, "pid", None), *get_address_host_port(worker.address)
        )
        return {"process": state, "host": socket.gethostname()} if state else {}
    except Exception:  # No nanny answers, or the address has no port.
        return {}


async def state_of_nannys_process(dask_worker: Any) -> dict[str, Any]:
    """Return the state of a nanny's worker process, and the name of the host."""
    return {"host": socket.gethostname(), "process": await process_state(dask_worker.pid)}


async def look_at_worker(keys: list[Any], pause: float, dask_worker: Any) -> dict[str, Any]:
    """Return the work in progress on a worker, from two snapshots.

    Parameters
    ----------
    keys
        Keys of the tasks that the scheduler has sent to the worker.
    pause
        Seconds between the snapshots.

    Returns
    -------
    dict
        ``host, status, time``, ``pause`` (seconds between the snapshots), ``tasks`` (see
        `tasks_under_way`), ``known`` (states of tasks by key) and ``held`` (see `held_locks`).

        ``known`` has up to `_MOST_KNOWN` tasks, and each of `keys` that the worker knew at one of
        the snapshots. For each task, ``unchanged`` is whether the task's stack was the same in both
        snapshots. ``cpu`` is the CPU seconds that the task's thread used between the snapshots.
        ``waited`` is the seconds that the thread waited for a core meanwhile. Both are None if
        unknown.
    """
    cpu: dict[Any, float] = {}
    states = dask_worker.state.tasks
    known = {key: str(states[key].state) for key in keys if key in states}
    begin = time.monotonic()
    before = {
        (row["key"], row["run_id"], row["thread"]): row["stack"]
        for row in tasks_under_way(dask_worker, 0.0, cpu)
    }
    waits_before = core_waits()
    await asyncio.sleep(pause)
    tasks, now = tasks_under_way(dask_worker, 0.0, cpu), time.time()
    waits = core_waits()
    for row in tasks:
        stack = before.get((row["key"], row["run_id"], row["thread"]))
        row["unchanged"] = stack is not None and stack == row["stack"]
        row["cpu"] = row["cpu"] if stack is not None else None
        thread = row["thread"]
        is_known = thread in waits and thread in waits_before
        row["waited"] = waits[thread] - waits_before[thread] if is_known else None
    for key in chain(islice(states, _MOST_KNOWN), keys):
        if key in states:
            known[key] = str(states[key].state)
    return {
        "host": socket.gethostname(),
        "status": dask_worker.status.name,
        "time": now,
        "pause": time.monotonic() - begin,
        "tasks": tasks,
        "known": known,
        "held": held_locks(dask_worker, tasks),
    }
