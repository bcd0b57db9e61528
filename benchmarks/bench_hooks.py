"""CPU time per hook call on the event loops, minus that of a plugin that does nothing.

Real plugins run on a real scheduler and worker in this process. Their hooks are called with the
arguments that Dask passes, and the CPU time of the calling thread is measured. It does not include
the writer's thread (see `bench_overhead`) or garbage collections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import distributed.worker
import numpy as np
from dask._task_spec import Task
from distributed import Client, LocalCluster, SchedulerPlugin, WorkerPlugin
from distributed.metrics import DelayedMetricsLedger
from distributed.worker_state_machine import ExecuteSuccessEvent
from measure import Result, interleave, spread

from dasfprof.recording.dask_internals.worker_calls import ActorCalls
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
from dasfprof.recording.settings import make_settings
from dasfprof.recording.task_runs import thread_time
from dasfprof.schema.tasks import ACTOR_CALL

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


def some_keys(kind: str, count: int = CALLS) -> tuple[list[Any], list[Any]]:
    """Return the keys of the tasks, and the keys on which each of them depends."""
    if kind == "str key":
        return [f"inc-{i:032x}" for i in range(count)], []
    return [("sum-" + "0" * 32, i, 0) for i in range(count)], [("x-" + "1" * 32, 0), ("y", 1)]


async def compute(client: Any, keys: list[Any], dependencies: list[Any]) -> list[Any]:
    """Compute the tasks, and return the futures that keep their results in the worker's memory."""
    inputs = [client.submit(int, 1, key=key) for key in dependencies]
    futures = [client.submit(_first, i, *inputs, key=key) for i, key in enumerate(keys)]
    await client.gather(futures)
    return inputs + futures


def _first(number: int, *inputs: int) -> int:
    return number


def _finished(key: Any, number: int) -> ExecuteSuccessEvent:
    now = time.time()
    return ExecuteSuccessEvent(
        key=key,
        run_id=number,
        value=np.ones((10, 10)),
        start=now,
        stop=now + 1,
        nbytes=800,
        type=np.ndarray,
        stimulus_id=f"task-finished-{now}",
    )


def worker_loop(keys: list[Any]) -> Callable[[Any, Any], float]:
    """Return a function that calls all hooks of the task runs and returns the seconds per run."""
    ledger = DelayedMetricsLedger()
    ledger.metrics = METRICS
    events = [_finished(key, number) for number, key in enumerate(keys)]

    def run(plugin: Any, finished: Callable[[Any, Any], None] | None) -> float:
        begin = time.thread_time()
        for key, event in zip(keys, events, strict=True):
            for start, finish in WORKER_STATES:
                plugin.transition(key, start, finish)
            if finished is not None:
                finished(event, ledger)
        return (time.thread_time() - begin) / len(keys)

    return run


async def measure(rounds: int) -> Result:
    settings = make_settings(
        name="hooks",
        directory=tempfile.mkdtemp(),
        flush_interval=3600,
        commit_threshold=1 << 30,
        max_pending=1 << 31,
    )
    result = Result("Hooks", ["hook", "us more than an empty plugin (quartiles)"])
    async with (
        LocalCluster(
            n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        worker = cluster.workers[0]
        for kind in ("str key", "tuple key, 2 dependencies"):
            keys, dependencies = some_keys(kind)
            futures = await compute(client, keys, dependencies)
            plugin = WorkerTaskPlugin(settings)
            plugin.setup(worker)
            run = worker_loop(keys)

            def ours(plugin: Any = plugin, run: Any = run) -> float:
                seconds = run(plugin, plugin._finished)
                plugin._source.rows.clear()
                return float(seconds)

            name = f"task run on the worker ({kind})"
            _row(result, name, ours, lambda run=run: run(WorkerPlugin(), None), rounds)
            if not dependencies:
                _run_queue_row(result, worker, rounds)
                _actor_row(result, worker, plugin, rounds)
            await plugin.teardown(worker)
            if not dependencies:
                await client.cancel(futures)
        scheduler_plugin = SchedulerTaskPlugin(settings)
        await scheduler_plugin.start(cluster.scheduler)
        _scheduler_rows(result, cluster.scheduler, worker, scheduler_plugin, rounds)
        await scheduler_plugin.stop()
    return result


def thread_loop(worker: Any) -> Callable[..., float]:
    """Return a function that runs tasks like a worker's thread and returns the seconds per run."""
    task = Task("inc-1", int)
    (queue,) = (item for item in gc.get_objects() if isinstance(item, thread_time.RunQueue))

    def loop(run: Any, calls: int = CALLS) -> float:
        token = distributed.worker._worker_cvar.set(worker)
        try:
            begin = time.thread_time()
            for _ in range(calls):
                run(task, {}, 0.0)
                queue.readings.pop("inc-1", None)
            return (time.thread_time() - begin) / calls
        finally:
            distributed.worker._worker_cvar.reset(token)

    return loop


def _run_queue_row(result: Result, worker: Any, rounds: int) -> None:
    """Compare task runs with and without the plugin's wrapper around the task's function."""
    observed = distributed.worker._run_task_simple
    loop = thread_loop(worker)
    both = [partial(loop, observed), partial(loop, observed.__wrapped__)]
    for kind, brief in (("brief", thread_time.BRIEF), ("longer", 0.0)):
        with mock.patch.object(thread_time, "BRIEF", brief):  # seconds
            _row(result, f"run queue of a {kind} task, in the task's thread", *both, rounds)


def _actor_row(result: Result, worker: Any, plugin: Any, rounds: int) -> None:
    """Compare actor calls, which are answered at once, with and without recording."""

    async def answer(*, actor: str, function: str, args: bytes) -> dict[str, str]:
        return {"status": "OK"}

    def loop() -> float:
        handler = worker.handlers["actor_execute"]
        begin = time.thread_time()
        for _ in range(CALLS):
            call = handler(actor="Counter-1", function="add", args=b"")
            with contextlib.suppress(StopIteration):
                call.send(None)
        return (time.thread_time() - begin) / CALLS

    def ours() -> float:
        calls = ActorCalls(worker, partial(plugin._append_row, ACTOR_CALL), HookGuard())
        try:
            return loop()
        finally:
            calls.stop()
            plugin._source.rows.clear()

    before = worker.handlers["actor_execute"]
    worker.handlers["actor_execute"] = answer
    try:
        _row(result, "actor call, on the worker", ours, loop, rounds)
    finally:
        worker.handlers["actor_execute"] = before


def scheduler_loop(scheduler: Any, worker: Any) -> Callable[[Any], float]:
    """Return a function that calls the hook for all transitions and returns seconds per call."""
    keys = list(scheduler.tasks)[:CALLS]
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
                facts = finished if finish == "memory" else {}
                target.transition(key, start, finish, stimulus_id="task-finished-1.5", **facts)
        return (time.thread_time() - begin) / len(keys) / len(SCHEDULER_STATES)

    return loop


def _scheduler_rows(result: Result, scheduler: Any, worker: Any, plugin: Any, rounds: int) -> None:
    loop = scheduler_loop(scheduler, worker)

    def ours() -> float:
        seconds = loop(plugin)
        plugin._source.rows.clear()
        return seconds

    nothing = SchedulerPlugin()
    _row(result, "transition on the scheduler", ours, lambda: loop(nothing), rounds)
    for task in scheduler.tasks.values():
        task.processing_on = None


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
    difference = [(a - b) * 1e6 for a, b in zip(measured["ours"], measured["nothing"], strict=True)]
    result.rows.append([name, "{:.2f} ({:.2f} to {:.2f})".format(*spread(difference))])
    result.figures[name] = difference


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(options.rounds))
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
