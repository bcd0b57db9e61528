"""Cost of recording on a scheduler with many workers and tasks.

A real scheduler runs in a separate process. Its workers only implement the protocol: in two other
processes, coroutines receive tasks and immediately report them as finished. A client submits graphs
of 10,000 tasks, half of which depend on three others, one after the other.

The CPU time of the event loop's thread is measured in total and within the hooks. A hook takes less
than a microsecond, so the cost of measuring is determined separately and subtracted. The CPU time
of dasfprof's threads is also shown, because they compete for the same GIL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client
from measure import Result

import dasfprof
from dasfprof.recording.cluster.by_value import by_value

#: Maximum number of tasks per graph.
GRAPH = 10_000
#: Number of worker processes.
PROCESSES = 2
#: Settings of Dask without timeouts, because many processes share few cores.
PATIENT = {
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "600s",
    "distributed.comm.timeouts.tcp": "600s",
    "distributed.worker.profile.enabled": False,
}
#: Hooks that Dask calls on the scheduler's event loop.
HOOKS = ("transition", "update_graph", "add_worker", "remove_worker", "add_client", "remove_client")


async def serve_workers(scheduler: str, process: int, count: int) -> None:
    """Act as `count` workers until the scheduler has closed."""
    from distributed.core import Server

    async def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
        from distributed.protocol import to_serialize

        return {"status": "OK", "result": to_serialize(None)}

    async def agree(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"status": "OK"}

    server = Server({"run": run, "plugin-add": agree, "plugin-remove": agree})
    await server.listen("tcp://0.0.0.0:0")
    numbers = range(process * count, (process + 1) * count)
    await asyncio.gather(*(be_worker(scheduler, server.port, number) for number in numbers))


async def be_worker(scheduler: str, port: int, number: int) -> None:
    """Register as a worker, and report each task as finished."""
    from distributed.comm import connect

    high, low = divmod(number, 200)
    registration = {
        **{"op": "register-worker", "reply": False, "status": "running", "nthreads": 1},
        **{"address": f"tcp://127.0.{high + 1}.{low + 1}:{port}", "name": number},
        **{"server_id": f"worker-{number}", "stimulus_id": f"worker-connect-{time.time()}"},
        **{"now": time.time(), "resources": {}, "memory_limit": 1 << 30, "pid": 0, "extra": {}},
        **{"services": {}, "local_directory": "", "versions": {}, "nanny": "", "metrics": METRICS},
    }
    comm = await connect(scheduler, deserialize=False)
    with contextlib.suppress(OSError):
        await comm.write(registration, serializers=["msgpack"])
        await comm.read()
        while True:
            now = time.time()
            answers = [
                {
                    **{"op": "task-finished", "status": "OK", "key": message["key"]},
                    **{"nbytes": 28, "type": b"", "typename": "int", "metadata": {}, "thread": 1},
                    "run_id": message["run_id"],
                    "stimulus_id": f"task-finished-{now}",
                    "startstops": ({"action": "compute", "start": now, "stop": now + 1e-5},),
                }
                for message in await comm.read()
                if message["op"] == "compute-task"
            ]
            if answers:
                await comm.write(answers, serializers=["msgpack"])


METRICS: dict[str, Any] = {
    **{"task_counts": {}, "bandwidth": {"total": 1e8, "workers": {}, "types": {}}, "cpu": 1},
    **{"digests_total_since_heartbeat": {}, "managed_bytes": 0, "memory": 1 << 20, "time": 0.0},
    **{"spilled_bytes": {"memory": 0, "disk": 0}, "transfer": {}, "event_loop_interval": 0.02},
    "host_net_io": {"read_bps": 0, "write_bps": 0},
    "host_disk_io": {"read_bps": 0, "write_bps": 0},
}


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """Run a scheduler and its workers, and yield a client."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        file = Path(directory, "scheduler.json")
        settings = "; ".join(f"dask.config.set({{{key!r}: {PATIENT[key]!r}}})" for key in PATIENT)
        program = (
            f"import dask; {settings}; from distributed.cli.dask_scheduler import main; main()"
        )
        options = ["--port", "0", "--host", "127.0.0.1", "--no-dashboard", "--no-show"]
        options += ["--scheduler-file", str(file)]
        _start(stack, [sys.executable, "-c", program, *options])
        while not file.exists():
            time.sleep(0.05)
        client = stack.enter_context(Client(scheduler_file=str(file), set_as_default=False))
        address = client.scheduler.address
        for process in range(PROCESSES):
            serve = ["--serve", address, str(process), str(workers // PROCESSES)]
            _start(stack, [sys.executable, __file__, *serve])
        client.wait_for_workers(workers // PROCESSES * PROCESSES)
        yield client


def _start(stack: contextlib.ExitStack, command: list[str]) -> None:
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)


@by_value
def count_hooks(names: tuple[str, ...], dask_scheduler: Any) -> float:
    """Start to measure the CPU time of hooks, and return the seconds per call that this costs."""
    from functools import wraps
    from time import thread_time
    from types import SimpleNamespace

    counts = dask_scheduler.counted = SimpleNamespace(seconds=0.0, calls=0)

    def timed(hook: Any) -> Any:
        @wraps(hook)
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = thread_time()
            try:
                return hook(*args, **kwargs)
            finally:
                counts.seconds += thread_time() - begin
                counts.calls += 1

        return call

    nothing = timed(lambda *args, **kwargs: None)
    begin = thread_time()
    for _ in range(100_000):
        nothing("key", "start", "finish", stimulus_id="")
    total = thread_time() - begin
    within = counts.seconds
    counts.seconds, counts.calls = 0.0, 0
    counts.within, counts.total = within / 100_000, total / 100_000
    for plugin in dask_scheduler.plugins.values():
        if type(plugin).__module__.startswith("dasfprof"):
            for name in names:
                if name in type(plugin).__dict__:
                    setattr(plugin, name, timed(getattr(plugin, name)))
    return counts.total


@by_value
def usage(dask_scheduler: Any) -> dict[str, float]:
    """Return CPU seconds and resident memory of the scheduler's process, and calls of hooks."""
    import gc
    import os
    import threading
    import time
    from pathlib import Path

    gc.collect()
    counts = getattr(dask_scheduler, "counted", None)
    ours = 0.0
    for thread in threading.enumerate():
        if thread.name.startswith("dasfprof"):
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
            ours += int(text.split()[0]) / 1e9
    return {
        "loop": time.thread_time() - (counts.calls * counts.total if counts else 0.0),
        "hooks": counts.seconds - counts.calls * counts.within if counts else 0.0,
        "calls": counts.calls if counts else 0,
        "threads": ours,
        "resident": int(Path("/proc/self/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE"),
    }


def compute_graphs(client: Client, count: int, size: int) -> None:
    """Compute `count` graphs of `size` tasks, one after the other. Workers do not run the tasks."""
    half = size // 2
    for number in range(count):
        graph: dict[Any, Any] = {("leaf", number, i): (max, i, i) for i in range(half)}
        for i in range(half):
            inputs = [("leaf", number, (i + k) % half) for k in range(3)]
            graph["join", number, i] = (max, *inputs)
        keys = [("join", number, i) for i in range(half)]
        futures = client.get(graph, keys, sync=False)
        client.sync(_finished, futures)
        del futures


async def _finished(futures: list[Any]) -> None:
    await asyncio.gather(*(future._state.wait() for future in futures))
    if any(future.status != "finished" for future in futures):
        raise RuntimeError(f"some tasks failed: {futures[0]}")


def _nothing() -> None:
    """Do nothing: `client.run` with this function shows the minimum cost of calling all workers."""


def seconds_of(call: Any) -> float:
    """Return the duration of a call in seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def join(client: Client, count: int) -> float:
    """Return the seconds until another worker has joined."""
    address = client.scheduler.address
    with contextlib.ExitStack() as stack:
        begin = time.perf_counter()
        _start(stack, [sys.executable, __file__, "--serve", address, str(count), "1"])
        client.wait_for_workers(count + 1)
        return time.perf_counter() - begin


def observe(recorded: bool, workers: int, tasks: int) -> dict[str, float]:
    """Compute the graphs on a new cluster, recorded or not."""
    size = min(GRAPH, tasks // 2)
    graphs = tasks // size
    figures: dict[str, float] = {"tasks": graphs * size}
    with tempfile.TemporaryDirectory() as directory, cluster(workers) as client:
        count = workers // PROCESSES * PROCESSES
        run: Any = None
        if recorded:
            begin = time.perf_counter()
            run = dasfprof.profile(client, directory=directory, response_timeout=300).__enter__()
            figures["start"] = time.perf_counter() - begin
        client.run_on_scheduler(count_hooks, HOOKS)
        compute_graphs(client, 1, size)  # warms up
        states = [client.run_on_scheduler(usage)]
        for part in range(2):
            compute_graphs(client, graphs // 2 + (graphs % 2) * part, size)
            if recorded:
                figures["flush"] = seconds_of(run.flush)
            states.append(client.run_on_scheduler(usage))
        figures["run"] = seconds_of(lambda: client.run(_nothing))
        figures["join"] = join(client, count)
        if recorded:
            figures["stop"] = seconds_of(run.stop)
        before, half, after = states
        figures |= {name: after[name] - before[name] for name in after}
        figures["resident later"] = after["resident"] - half["resident"]
    return figures


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    dask.config.set(PATIENT)
    if options.serve:
        scheduler, process, count = options.serve
        asyncio.run(serve_workers(scheduler, int(process), int(count)))
        return []
    plain, recorded = (observe(on, options.workers, options.tasks) for on in (False, True))
    tasks = recorded["tasks"]
    result = Result(
        f"A scheduler of {options.workers:,} workers, {tasks:,.0f} tasks",
        ["figure", "not recorded", "recorded"],
    )

    def row(name: str, *values: str) -> None:
        result.rows.append([name, *values])

    both = plain, recorded
    row("CPU of event loop, us per task", *(f"{1e6 * each['loop'] / tasks:.1f}" for each in both))
    row("in hooks, us per task", "", f"{1e6 * recorded['hooks'] / tasks:.2f}")
    row("hooks, fraction of event loop", "", f"{recorded['hooks'] / recorded['loop']:.2%}")
    row("hook calls per task", "", f"{recorded['calls'] / tasks:.1f}")
    row("dasfprof's threads, us per task", "", f"{1e6 * recorded['threads'] / tasks:.1f}")
    row("memory growth, MB", *(f"{each['resident'] / 1e6:.1f}" for each in both))
    row(
        "memory growth in second half, MB",
        *(f"{each['resident later'] / 1e6:.1f}" for each in both),
    )
    row("client.run() of an empty function, s", *(f"{each['run']:.2f}" for each in both))
    row("joining of a worker, s", *(f"{each['join']:.2f}" for each in both))
    for method in ("start", "flush", "stop"):
        row(f"{method}(), s", "", f"{recorded[method]:.2f}")
    result.figures = {"none": plain, "dasfprof": recorded}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
