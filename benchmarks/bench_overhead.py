"""Cost of profiling a run: CPU time of all processes, and wall time.

All variants take turns on one cluster, because two clusters can differ by more than the overhead.
The cluster has two worker processes; scheduler and client share a third process. A measurement
registers the profiler, computes, and stops the profiler. "Complete run" counts all three steps, and
"recording" counts the computation and writing. The cost of registering and stopping in each
process is also measured on an idle cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dasf_checkout
from measure import Result, interleave, ratios, spread

VARIANTS = ("none", "dasfprof", "performance_report")
#: Further variants for `--variant`.
OTHER_VARIANTS = (
    "dasfprof without stacks",
    "dasfprof with cprofile",
    "plugins that do nothing",
    "get_task_stream",
)
DASF = "dasf.profile"
#: Options of dasfprof by variant.
OPTIONS: dict[str, dict[str, Any]] = {
    "dasfprof": {},
    "dasfprof without stacks": {"stack_frequency": 0},
    "dasfprof with cprofile": {"profiler": "cprofile"},
}


def no_op_tasks(client: Any, count: int) -> None:
    """Run tasks that do nothing, so that only the handling of tasks is measured."""
    client.gather(client.map(_nothing, range(count), pure=False))


def short_tasks(client: Any, count: int) -> None:
    """Run tasks that compute for 10 ms each."""
    client.gather(client.map(_ten_milliseconds, range(count), pure=False))


def small_objects(client: Any, count: int) -> None:
    """Run tasks that create many small objects."""
    client.gather(client.map(_fifty_thousand_tuples, range(count), pure=False))


def demo_pipeline(client: Any, count: int) -> None:
    """Normalize an array and run a few rounds of k-means, as in the demo."""
    import dask.array as da

    points = da.random.default_rng(1).random((count * 2000, 8), chunks=(20_000, 8))
    points = ((points - points.mean(axis=0)) / points.std(axis=0)).persist()
    centres = points[:4].compute()
    for _ in range(4):
        distances = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        centres = da.stack(
            [da.where((nearest == k)[:, None], points, 0).sum(axis=0) for k in range(4)]
        ).compute() / max(count, 1)


def _nothing(i: int) -> int:
    return i


def _ten_milliseconds(i: int) -> int:
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return i


def _fifty_thousand_tuples(i: int) -> int:
    return len([(i, str(number)) for number in range(50_000)])


WORKLOADS = {
    "no-op tasks": (no_op_tasks, 6000),
    "10 ms tasks": (short_tasks, 700),
    "array pipeline": (demo_pipeline, 400),
    "small objects": (small_objects, 6),
}
#: Workloads that are measured by default.
USUAL = ("no-op tasks", "10 ms tasks", "array pipeline")


@contextlib.contextmanager
def profiler(
    name: str, client: Any, directory: str, dasf: Path | None
) -> Iterator[Callable[[], object]]:
    """Profile the block with the variant; yield a function that writes all recorded events."""
    if name == "none":
        yield _nothing_to_write
    elif name in OPTIONS:
        import dasfprof

        with dasfprof.profile(client, directory=directory, **OPTIONS[name]) as run:
            yield run.flush
    elif name == "performance_report":
        from distributed import performance_report

        with performance_report(filename=str(Path(directory, "report.html"))):
            yield _nothing_to_write
    elif name == "get_task_stream":
        from distributed import get_task_stream

        with get_task_stream(client):
            yield _nothing_to_write
    elif name == DASF:
        assert dasf is not None
        client.run(dasf_checkout.prepare, str(dasf))
        plugin = dasf_checkout.load(dasf, "plugins").WorkerTaskPlugin(
            name=str(Path(directory, "dasf"))
        )
        client.register_plugin(plugin)
        yield _nothing_to_write
        client.unregister_worker_plugin(plugin.name)
        client.run(_commit_dasf)
    else:
        from distributed import SchedulerPlugin, WorkerPlugin

        client.register_plugin(WorkerPlugin(), name="nothing-worker")
        client.register_plugin(SchedulerPlugin(), name="nothing-scheduler")
        yield _nothing_to_write
        client.unregister_worker_plugin("nothing-worker")
        client.unregister_scheduler_plugin("nothing-scheduler")


def _nothing_to_write() -> None:
    """Replace the flush of a profiler that has none."""


def _commit_dasf() -> None:
    """Write DASF's remaining events now: DASF would write them when the process exits."""
    import gc

    for item in gc.get_objects():
        if type(item).__name__ == "FileDatabase" and type(item).__module__.startswith("dasf."):
            item.commit()


def settle(client: Any) -> None:
    """Wait until scheduler and workers have forgotten the tasks.

    Keys are released after the client has received the results. Without this wait, that work would
    be counted for profilers that take a moment to stop, but not for profilers that stop at once.
    """
    while client.run_on_scheduler(_tasks_on_scheduler) or any(
        client.run(_tasks_on_worker).values()
    ):
        time.sleep(0.02)


def _tasks_on_scheduler(dask_scheduler: Any = None) -> int:
    return len(dask_scheduler.tasks)


def _tasks_on_worker(dask_worker: Any = None) -> int:
    return len(dask_worker.state.tasks)


def serve(workload: str, count: int, dasf: Path | None, pipe: Any) -> None:
    """Run a cluster in this process; compute the workload for each variant that the pipe names."""
    import dask
    import psutil
    from distributed import Client, LocalCluster

    def cpu_seconds() -> float:
        me = psutil.Process()
        times = [process.cpu_times() for process in [me, *me.children(recursive=True)]]
        return float(sum(t.user + t.system for t in times))

    function: Callable[[Any, int], None] = WORKLOADS[workload][0]
    saturation = {"distributed.scheduler.worker-saturation": "inf"}
    with (
        dask.config.set(saturation),
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        while name := pipe.recv():
            cpu, wall = cpu_seconds(), time.perf_counter()
            with profiler(name, client, directory, dasf) as flush:
                registered = cpu_seconds()
                function(client, count)
                settle(client)
                flush()
                written = cpu_seconds()
            complete = cpu_seconds() - cpu, time.perf_counter() - wall
            pipe.send((*complete, written - registered))


def serve_idle(dasf: Path | None, pipe: Any) -> None:
    """Run a cluster in this process; register and stop each variant that the pipe names."""
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def cpu_seconds() -> list[float]:
            workers = client.run(time.process_time)
            return [time.process_time(), *(workers[address] for address in sorted(workers))]

        while name := pipe.recv():
            before = cpu_seconds()
            with profiler(name, client, directory, dasf):
                pass
            pipe.send([after - b for after, b in zip(cpu_seconds(), before, strict=True)])


def ask(
    target: Callable[..., None], arguments: tuple[Any, ...], variants: Sequence[str], rounds: int
) -> dict[str, list[Any]]:
    """Measure all variants in interleaved rounds, in a process that runs a cluster."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()  # otherwise, recv() would block if the process died

    def once(name: str) -> Any:
        pipe.send(name)
        return pipe.recv()

    try:
        turns = {n: lambda n=n: once(n) for n in variants}
        return interleave(turns, rounds, warm_up=min(2, rounds))
    finally:
        pipe.send(None)
        process.join(30)


def measure(
    workload: str, variants: list[str], rounds: int, count: int, dasf: Path | None
) -> Result:
    """Compare the variants on one workload."""
    measured = ask(serve, (workload, count, dasf), variants, rounds)
    columns = ("CPU, complete run", "CPU, recording", "wall, complete run")
    result = Result(
        f"Overhead on {workload}, medians of {rounds} rounds (quartiles)",
        ["profiler", *columns, "CPU of complete run per task, us"],
    )
    cpu, wall, inside = (
        {name: [value[part] for value in values] for name, values in measured.items()}
        for part in range(3)
    )
    compared = [ratios(figures, variants[0]) for figures in (cpu, inside, wall)]
    for name in variants:
        cells = ["x{:.3f} ({:.3f} to {:.3f})".format(*spread(r[name])) for r in compared]
        result.rows.append([name, *cells, f"{spread(cpu[name])[0] / count * 1e6:.0f}"])
    result.figures = {"rounds": rounds, "tasks": count, "cpu": cpu, "recording": inside}
    result.figures["wall"] = wall
    return result


def measure_registration(variants: list[str], rounds: int, dasf: Path | None) -> Result:
    """Measure registering and stopping in each process, minus the cost of measuring."""
    measured = ask(serve_idle, (dasf,), variants, rounds)
    result = Result(
        "Registering and stopping, CPU in ms (quartiles)",
        ["profiler", "scheduler and client", "each worker"],
    )
    base = [spread([value[part] for value in measured[variants[0]]])[0] for part in range(3)]
    for name in variants[1:]:
        client = [value[0] - base[0] for value in measured[name]]
        workers = [v[part] - base[part] for v in measured[name] for part in (1, 2)]
        cells = ["{:.1f} ({:.1f} to {:.1f})".format(*spread(_ms(s))) for s in (client, workers)]
        result.rows.append([name, *cells])
    result.figures = {"rounds": rounds, "cpu": measured}
    return result


def _ms(seconds: list[float]) -> list[float]:
    return [1000 * value for value in seconds]


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workload", choices=WORKLOADS, action="append")
    parser.add_argument(
        "--variant",
        action="append",
        help=f"variant to compare with none; also {', '.join(OTHER_VARIANTS)}",
    )
    parser.add_argument("--dasf-core", type=Path, help="checkout of DASF to compare with")
    options = parser.parse_args(arguments)
    results = []
    for workload in options.workload or USUAL:
        variants = ["none", *(options.variant or VARIANTS[1:])]
        if options.dasf_core and not options.variant:
            variants.append(DASF)
        count = WORKLOADS[workload][1]
        result = measure(workload, variants, options.rounds, count, options.dasf_core)
        print(result.show(), flush=True)
        results.append(result)
    result = measure_registration(variants, options.rounds, options.dasf_core)
    print(result.show(), flush=True)
    return [*results, result]


if __name__ == "__main__":
    main()
