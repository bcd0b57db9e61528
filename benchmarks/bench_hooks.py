"""What one call of a hook costs the event loop, beyond a plugin that does nothing.

Real plugins on a real scheduler and worker in this process; their hooks are called with the
arguments that Dask gives them, and CPU time of the calling thread is taken. What the writer's
thread does is not in these figures (see `bench_overhead`), nor are garbage collections.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, SchedulerPlugin, WorkerPlugin
from distributed.metrics import DelayedMetricsLedger
from distributed.worker_state_machine import ExecuteSuccessEvent
from measure import Result, interleave, spread

from dasfprof.recording.scheduler import SchedulerTaskPlugin
from dasfprof.recording.settings import make_settings
from dasfprof.recording.worker import WorkerTaskPlugin

CALLS = 2000

WORKER_STATES = (
    ("released", "waiting"),
    ("waiting", "ready"),
    ("ready", "executing"),
    ("executing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)
SCHEDULER_STATES = (
    ("released", "waiting"),
    ("waiting", "processing"),
    ("processing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)
METRICS = [
    ("thread-cpu", 0.001, "seconds"),
    ("thread-noncpu", 0.001, "seconds"),
    ("executor", 0.0001, "seconds"),
]


def _tasks(kind: str) -> tuple[list[Any], list[Any]]:
    if kind == "str key":
        return [f"inc-{i:032x}" for i in range(CALLS)], []
    return [("sum-" + "0" * 32, i, 0) for i in range(CALLS)], [("x-" + "1" * 32, 0), ("y", 1)]


async def worker_hooks(client: Any, worker: Any, kind: str) -> dict[str, Callable[[], float]]:
    """Make the loops that call all hooks of `CALLS` task runs; each gives seconds a run."""
    keys, dependencies = _tasks(kind)
    futures = client.map(abs, range(CALLS), key=keys) if not dependencies else []
    for key in dependencies:
        futures.append(client.submit(np.ones, 10, key=key))
    if dependencies:
        sources = futures[-len(dependencies) :]
        futures += [client.submit(max, 1, i, sources, key=key) for i, key in enumerate(keys)]
    await client.gather(futures, errors="skip")
    worker.bench_futures = futures
    ledger = DelayedMetricsLedger()
    ledger.metrics = METRICS
    now = time.time()
    value = np.ones((10, 10))
    events = [
        ExecuteSuccessEvent(
            key=key,
            run_id=number,
            value=value,
            start=now,
            stop=now + 1,
            nbytes=800,
            type=np.ndarray,
            stimulus_id=f"task-finished-{now}",
        )
        for number, key in enumerate(keys)
    ]

    def run(plugin: Any, finished: Callable[[Any, Any], None] | None) -> float:
        begin = time.thread_time()
        for key, event in zip(keys, events, strict=True):
            for start, finish in WORKER_STATES:
                plugin.transition(key, start, finish)
            if finished is not None:
                finished(event, ledger)
        return (time.thread_time() - begin) / CALLS

    return {"run": run}  # type: ignore[dict-item]


async def measure(rounds: int) -> list[Result]:
    results = []
    settings = make_settings(
        "hooks",
        directory=tempfile.mkdtemp(),
        flush_interval=3600,
        commit_threshold=1 << 30,
        max_pending=1 << 31,
    )
    async with (
        LocalCluster(
            n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        worker = cluster.workers[0]
        result = Result("Hooks", ["fact", "beyond a plugin that does nothing, us (quartiles)"])
        for kind in ("str key", "tuple key, 2 dependencies"):
            loops = await worker_hooks(client, worker, kind)
            plugin = WorkerTaskPlugin(settings)
            plugin.setup(worker)
            nothing = WorkerPlugin()
            run: Any = loops["run"]

            def ours(plugin: Any = plugin, run: Any = run) -> float:
                seconds = run(plugin, plugin._finished)
                plugin._source.rows.clear()
                return float(seconds)

            _row(result, f"task run on the worker ({kind})", ours, lambda r=run: r(nothing, None), rounds)
            await plugin.teardown(worker)
        plugin_s = SchedulerTaskPlugin(settings)
        await plugin_s.start(cluster.scheduler)
        _scheduler_rows(result, cluster.scheduler, worker, plugin_s, rounds)
        await plugin_s.stop()
        results.append(result)
    return results


def _scheduler_rows(result: Result, scheduler: Any, worker: Any, plugin: Any, rounds: int) -> None:
    keys = [key for key in scheduler.tasks][:CALLS]
    state = scheduler.workers[worker.address]
    for key in keys:
        scheduler.tasks[key].processing_on = state
        scheduler.tasks[key].run_id = 1
    finished: dict[str, Any] = {
        "worker": worker.address,
        "nbytes": 800,
        "type": b"x",
        "typename": "int",
        "metadata": {},
        "thread": 1,
        "startstops": [{"action": "compute", "start": time.time(), "stop": time.time()}],
        "status": "OK",
    }

    def loop(target: Any) -> float:
        begin = time.thread_time()
        for key in keys:
            for start, finish in SCHEDULER_STATES:
                more = finished if finish == "memory" else {}
                target.transition(key, start, finish, stimulus_id="task-finished-1.5", **more)
        return (time.thread_time() - begin) / len(keys) / len(SCHEDULER_STATES)

    def ours() -> float:
        seconds = loop(plugin)
        plugin._source.rows.clear()
        return seconds

    nothing = SchedulerPlugin()
    _row(result, "transition on the scheduler", ours, lambda: loop(nothing), rounds)
    for key in keys:
        scheduler.tasks[key].processing_on = None


def _row(
    result: Result,
    name: str,
    ours: Callable[[], float],
    nothing: Callable[[], float],
    rounds: int,
) -> None:
    gc.collect()
    gc.disable()
    try:
        measured = interleave({"nothing": nothing, "ours": ours}, rounds, warm_up=3)
    finally:
        gc.enable()
    beyond = [(a - b) * 1e6 for a, b in zip(measured["ours"], measured["nothing"], strict=True)]
    result.rows.append([name, "{:.2f} ({:.2f} to {:.2f})".format(*spread(beyond))])
    result.figures[name] = beyond


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    results = asyncio.run(measure(options.rounds))
    for result in results:
        print(result.show(), flush=True)
    return results


if __name__ == "__main__":
    main()
