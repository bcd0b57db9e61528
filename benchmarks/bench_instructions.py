"""Instructions per task that recording adds: a reproducible figure, unlike CPU seconds.

valgrind counts the instructions of one process that contains client, scheduler and worker. Start
and stop cost the same for few tasks as for many. The slope between two numbers of tasks therefore
gives instructions per task. Both numbers run in forks of a process that has imported Dask, because
under valgrind the imports take longer than thousands of tasks. Each process ends its measurement
only when the scheduler has forgotten all tasks, so that Dask's work to release them counts in every
arm. Periodic work is switched off, because it would run about 50 times as often per task under
valgrind. It has separate benchmarks (`bench_idle`, `bench_sampler`, `bench_sampling`,
`bench_under_way`). The garbage collector is off, since one full collection more or less is 2 to 4 %
of the total. Instructions of the kernel are not counted.

The hooks of a worker, of a scheduler, and of a task's thread are also called without a run,
because a hook of 10,000 instructions is close to the difference between two rounds of a complete
run.

``--budget FILE`` compares with stored figures. The exit code is 1 if default recording costs more
than the stored figure plus `ALLOWANCE`, or one group of hooks more than its figure plus
`ALLOWANCE_ALONE`. For a run, the difference to an unrecorded run is compared. It hardly depends on
the version of Dask but on the version of Python: the file has figures for each. ``--keep FILE``
writes such a file.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import Result

#: Threshold (instructions per task): recording may cost this much more than the stored figure, one
#: percent of a task that does nothing. On a busy machine, three counts differed by 5,000.
ALLOWANCE = 30_000
#: The same for parts that are counted alone, so that a hook of 10,000 instructions fails. On a busy
#: machine, counts of a part differed by up to 9,000, so a count above the budget is repeated once.
ALLOWANCE_ALONE = 7_000
#: Maximum number of rounds to add if a figure is above the budget.
MORE_ROUNDS = 1
#: Arms. The first is the baseline of the others. Arms with "without" leave a part of recording out.
USUAL = ("none", "empty plugins", "performance_report", "dasfprof")
PARTS = (
    "dasfprof without the worker's hooks",
    "dasfprof without the scheduler's hooks",
    "dasfprof without writing",
)
#: Parts of recording that are counted alone: their hooks are called without a run.
ALONE = ("hooks of the worker", "hooks of the scheduler", "in a task's thread")
#: For these parts: number of keys, runs of all keys between two commits, and the two numbers of
#: runs.
_KEYS, _LOOPS, _FEW, _MANY = 200, 25, 5_000, 25_000
OPTIONS: dict[str, dict[str, Any]] = {
    "dasfprof with stack_frequency=0": {"stack_frequency": 0},
    "dasfprof with arguments='values'": {"arguments": "values"},
    "dasfprof with arguments='off'": {"arguments": "off"},
    "dasfprof with record_code=False": {"record_code": False},
    "dasfprof with record_prints=True": {"record_prints": True},
    "dasfprof with log_level='debug'": {"log_level": "debug"},
    "dasfprof with ship='scheduler'": {"ship": "scheduler"},
}
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
#: Dask's settings without timeouts, because valgrind makes processes slow.
PATIENT = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "600s",
    "distributed.comm.timeouts.tcp": "600s",
}


def no_op_tasks(client: Any, count: int) -> int:
    """Run tasks of one function that does nothing."""
    from distributed import wait

    wait(client.map(_nothing, range(count), pure=False))
    return count


def joining_tasks(client: Any, count: int) -> int:
    """Run tasks with tuples as keys, half of which depend on three others."""
    from dask.utils import apply
    from distributed import wait

    half = count // 2
    graph: dict[Any, Any] = {("leaf", i): (apply, _nothing, [i]) for i in range(half)}
    for i in range(half):
        inputs = [("leaf", (i + k) % half) for k in range(3)]
        graph["join", i] = (_first, *inputs)
    wait(client.get(graph, [("join", i) for i in range(half)], sync=False))
    return len(graph)


def array_pipeline(client: Any, count: int) -> int:
    """Compute a mean by chunks, with fused blocks and a tree of sums."""
    import dask
    import dask.array as da
    from distributed import wait

    chunks = max(count * 3 // 4, 8)
    mean = ((da.ones(chunks * 4, chunks=4) + 1) * 2).mean(split_every=4)
    (optimised,) = dask.optimize(mean)
    wait(optimised.persist())
    return len(dict(optimised.__dask_graph__()))


def _nothing(i: int) -> int:
    return i


def _first(*values: int) -> int:
    return values[0]


WORKLOADS = {
    "no-op tasks": no_op_tasks,
    "tasks of three dependencies": joining_tasks,
    "array pipeline": array_pipeline,
}


def run_once(arm: str, workload: str, count: int) -> None:
    """Run a workload with an arm in this process, and print the number of tasks."""
    import gc

    import dask
    from distributed import Client, LocalCluster

    _stop_clocks()
    with dask.config.set(PATIENT), tempfile.TemporaryDirectory() as directory:
        gc.collect()
        gc.freeze()
        gc.disable()
        with (
            LocalCluster(
                n_workers=1,
                threads_per_worker=1,
                processes=False,
                dashboard_address=None,
                silence_logs=50,
                memory_limit=0,
                executor=InlineThreadPoolExecutor(),
            ) as cluster,
            Client(cluster) as client,
            observed(arm, client, directory),
        ):
            tasks = WORKLOADS[workload](client, count)
            _wait_until_forgotten(cluster)
    print(f"tasks: {tasks} in process {os.getpid()}")


def _wait_until_forgotten(cluster: Any) -> None:
    """Wait until scheduler and workers hold no task.

    Without this, an arm that closes the cluster at once would leave out Dask's work to release the
    tasks, and an arm that still has something to write would include it: up to 8 % of a task.
    """
    while cluster.scheduler.tasks or any(w.state.tasks for w in cluster.workers.values()):
        time.sleep(0.1)


async def run_alone(part: str, count: int) -> None:
    """Call the hooks of a part for task runs as Dask does, and write their rows."""
    import gc

    import bench_hooks
    import dask
    import distributed.worker
    from distributed import Client, LocalCluster

    from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
    from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
    from dasfprof.recording.settings import make_settings

    _stop_clocks()
    _stop_our_clocks()
    gc.disable()
    with dask.config.set(PATIENT), tempfile.TemporaryDirectory() as directory:
        rare: dict[str, Any] = {"flush_interval": 3600, "stack_frequency": 1e-3}
        rare |= {"commit_threshold": 1 << 30, "max_pending": 1 << 31}
        settings = make_settings(name="alone", directory=directory, **rare)
        async with (
            LocalCluster(
                n_workers=1, processes=False, asynchronous=True, dashboard_address=None
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            worker = cluster.workers[0]
            keys, _ = bench_hooks.some_keys("str key", _KEYS)
            futures = await bench_hooks.compute(client, keys, [])
            on_worker, on_scheduler = WorkerTaskPlugin(settings), SchedulerTaskPlugin(settings)
            on_worker.setup(worker)
            await on_scheduler.start(cluster.scheduler)
            run_task, run_tasks = (
                distributed.worker._run_task_simple,
                bench_hooks.thread_loop(worker),
            )
            finish_runs = bench_hooks.worker_loop(keys)
            change_states = bench_hooks.scheduler_loop(cluster.scheduler, worker)
            for number in range(1, count // _KEYS + 1):
                if part == "hooks of the worker":
                    finish_runs(on_worker, on_worker._finished)
                elif part == "hooks of the scheduler":
                    change_states(on_scheduler)
                else:
                    run_tasks(run_task, _KEYS)
                if not number % _LOOPS:
                    on_worker._writer.commit()
                    on_scheduler.database.commit()
            await on_worker.teardown(worker)
            await on_scheduler.stop()
            del futures
    print(f"tasks: {count} in process {os.getpid()}")


@contextmanager
def observed(arm: str, client: Any, directory: str) -> Iterator[None]:
    """Record the block as the arm does."""
    if arm == "empty plugins":
        _register_empty(client)
        yield
        return
    context: Any = nullcontext()
    if arm == "performance_report":
        from distributed import performance_report

        context = performance_report(str(Path(directory, "report.html")))
    elif arm != "none":
        import dasfprof

        _stop_our_clocks()
        _leave_out(arm.partition(" without ")[2])
        settings = {"sample_interval": 1000, "flush_interval": 1000, "response_timeout": 600}
        # The stack sampler is set up but takes no samples, because they depend on the clock.
        settings |= {"stack_frequency": 1e-3, **OPTIONS.get(arm, {})}
        context = dasfprof.profile(client, directory=directory, **settings)
    with context:
        yield


def _register_empty(client: Any) -> None:
    from distributed import SchedulerPlugin, WorkerPlugin

    class EmptyWorkerPlugin(WorkerPlugin):  # type: ignore[misc]
        name = "empty-worker"

        def setup(self, worker: Any) -> None: ...

        def transition(self, *args: Any, **kwargs: Any) -> None: ...

    class EmptySchedulerPlugin(SchedulerPlugin):  # type: ignore[misc]
        name = "empty-scheduler"

        def transition(self, *args: Any, **kwargs: Any) -> None: ...

    client.register_plugin(EmptyWorkerPlugin())
    client.register_plugin(EmptySchedulerPlugin())


def _stop_clocks() -> None:
    """Stop Dask's periodic work, whose frequency per task depends on the load of the machine.

    Threads switch only when one waits. Messages are sent at once, as they are if tasks take longer
    than the milliseconds for which Dask collects messages. Periodic callbacks get intervals of
    hours. Their timers stay in the event loop's queue, because their number affects the cost of
    adding timers.
    """
    from distributed.batched import BatchedSend
    from distributed.deploy.cluster import Cluster
    from tornado.ioloop import PeriodicCallback

    sys.setswitchinterval(600)
    start_collecting, start_calling = BatchedSend.__init__, PeriodicCallback.start

    def send_at_once(self: Any, interval: Any, *args: Any, **kwargs: Any) -> None:
        start_collecting(self, 0, *args, **kwargs)

    def call_in_hours(self: Any) -> None:
        self.callback_time = 1e8  # milliseconds
        start_calling(self)

    async def send_nothing(self: Any) -> None: ...

    BatchedSend.__init__ = send_at_once
    PeriodicCallback.start = call_in_hours
    Cluster._sync_cluster_info = send_nothing  # to the scheduler, each second


class InlineThreadPoolExecutor(Executor):
    """Executor that runs each task in the event loop's thread.

    Dask treats an executor as a thread pool only if its class name contains "ThreadPoolExecutor".
    A real thread would finish a task before or after the next turn of the event loop, depending on
    the machine, and so change how many messages the tasks take: 2 % of all Python calls between
    three runs, and 0.3 % with this executor.
    """

    def submit(self, run: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(run(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _stop_our_clocks() -> None:
    """Stop the recorder's periodic work, and let it treat each task as brief."""
    from dasfprof.recording.plugins import tasks
    from dasfprof.recording.task_runs import thread_time
    from dasfprof.recording.under_way import scheduler
    from dasfprof.recording.under_way.loop import Pulse

    thread_time.BRIEF = thread_time.STALE = tasks.LEAST = 600.0
    scheduler.INTERVAL = 600.0
    Pulse.__init__.__defaults__ = (600.0,)  # type: ignore[misc]


def _leave_out(part: str) -> None:
    """Replace a part of the recorder with empty functions, in this process."""

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    if part == "the worker's hooks":
        from dasfprof.recording.plugins.tasks import WorkerTaskPlugin

        WorkerTaskPlugin._start = WorkerTaskPlugin.transition = nothing  # type: ignore[assignment]
    elif part == "the scheduler's hooks":
        from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin

        SchedulerTaskPlugin.transition = nothing  # type: ignore[assignment]
    elif part == "writing":
        from dasfprof.database.blocks import BlockWriter

        BlockWriter.write = nothing  # type: ignore[method-assign, assignment]
    elif part:
        raise ValueError(f"no part is called {part!r}")


def _run_child(
    arm: str, workload: str, counts: Sequence[int], under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    # Without bytecode on disk, or while another program writes it, a process compiles the package:
    # up to 1.1e9 instructions, more than recording thousands of tasks takes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [*under, sys.executable, __file__, "--child", arm, workload, *map(str, counts)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def _run_forks(arm: str, workload: str, counts: Sequence[int]) -> None:
    """Run each number of tasks in a fork of this process."""
    importlib.import_module("bench_hooks" if arm == "alone" else "distributed")
    for count in counts:
        process = multiprocessing.get_context("fork").Process(
            target=_run_fork, args=(arm, workload, count)
        )
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


def _run_fork(arm: str, workload: str, count: int) -> None:
    if arm == "alone":
        asyncio.run(run_alone(workload, count))
    else:
        run_once(arm, workload, count)


def count_slope(arm: str, workload: str, few: int, many: int) -> float:
    """Return the instructions per task between two numbers of tasks, under valgrind."""
    ran = _run_child(arm, workload, (few, many), _VALGRIND)
    counts = dict(re.findall(r"^==(\d+)== I +refs: +([\d,]+)", ran.stderr, re.MULTILINE))
    tasks = re.findall(r"^tasks: (\d+) in process (\d+)$", ran.stdout, re.MULTILINE)
    if ran.returncode or len(tasks) != 2:
        raise RuntimeError(f"{arm}, {workload}: {ran.stdout[-500:]} {ran.stderr[-2000:]}")
    low, high = (int(counts[process].replace(",", "")) for _, process in tasks)
    return (high - low) / (int(tasks[1][0]) - int(tasks[0][0]))


def count_rounds(
    arms: list[str], workload: str, few: int, many: int, rounds: int
) -> dict[str, list[float]]:
    """Return instructions per task by arm, one figure per round; one process per core."""
    turns = arms * rounds
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        counted = list(pool.map(lambda arm: count_slope(arm, workload, few, many), turns))
    return {arm: counted[place :: len(arms)] for place, arm in enumerate(arms)}


def count_alone() -> dict[str, int]:
    """Return the instructions per task run of each part that is counted alone."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        slopes = list(pool.map(lambda part: count_slope("alone", part, _FEW, _MANY), ALONE))
    return dict(zip(ALONE, map(round, slopes), strict=True))


def measure(arms: list[str], workload: str, sizes: tuple[int, int], rounds: int) -> Result:
    """Compare the arms on one workload."""
    slopes = count_rounds(arms, workload, *sizes, rounds)
    result = Result(
        f"Instructions of {workload}, medians of {rounds} rounds (minimum to maximum)",
        ["recorded by", "thousand instructions per task", "ratio to the first", "ratios of rounds"],
    )
    base = statistics.median(slopes[arms[0]])
    for arm in arms:
        figures = slopes[arm]
        median = statistics.median(figures)
        singles = [value / first for value, first in zip(figures, slopes[arms[0]], strict=True)]
        result.rows.append(
            [
                arm,
                "{:.0f} ({:.0f} to {:.0f})".format(
                    *(value / 1e3 for value in (median, min(figures), max(figures)))
                ),
                f"x{median / base:.3f}",
                f"{min(singles):.3f} to {max(singles):.3f}",
            ]
        )
    result.figures = {"rounds": rounds, "sizes": sizes, "instructions": slopes}
    return result


def medians(result: Result) -> dict[str, int]:
    """Return the median instructions per task of each arm."""
    return {
        arm: round(statistics.median(slopes))
        for arm, slopes in result.figures["instructions"].items()
    }


def python_version() -> str:
    """Return the minor version of Python, such as `"3.13"`, for which figures are stored."""
    return ".".join(platform.python_version_tuple()[:2])


def check_budget(
    results: dict[str, Result], alone: dict[str, int], budget: Path, sizes: tuple[int, int]
) -> bool:
    """Return whether the instructions of recording are within the budget."""
    stored = json.loads(budget.read_text()).get(python_version())
    if stored is None:
        print(f"{budget} has no figures for Python {python_version()}")
        return True
    within = []
    for part, count in alone.items():
        limit = stored["alone"].get(part)
        if limit is not None and count > limit + ALLOWANCE_ALONE:
            count = min(count, round(count_slope("alone", part, _FEW, _MANY)))  # noqa: PLW2901
        within.append(_check(part, count, limit, ALLOWANCE_ALONE))
    for workload, result in results.items():
        before = stored.get(workload)
        limit = before and _added(before)
        for _ in range(MORE_ROUNDS):
            if limit is None or _added(medians(result)) <= limit + ALLOWANCE:
                break
            more = count_rounds(["none", "dasfprof"], workload, *sizes, 1)
            for arm, slopes in more.items():
                result.figures["instructions"][arm] += slopes
        within.append(_check(workload, _added(medians(result)), limit, ALLOWANCE))
    print(f"stored with Dask {stored['distributed']}, counted with {version('distributed')}")
    return all(within)


def _check(name: str, count: int, limit: int | None, allowance: int) -> bool:
    """Print a figure and its limit, and return whether it is within the limit."""
    if limit is None:
        print(f"{name}: {count:,} instructions per task, no stored figure")
        return True
    within = count <= limit + allowance
    print(
        f"{name}: {count:,} instructions per task, stored {limit:,}, allowed {limit + allowance:,}"
        + ("" if within else ": BEYOND THE BUDGET")
    )
    return within


def _added(counted: dict[str, int]) -> int:
    """Return the instructions per task that default recording adds."""
    return counted["dasfprof"] - counted["none"]


def keep(results: dict[str, Result], alone: dict[str, int], budget: Path) -> None:
    """Store the instructions per task of arms and parts as the budget of this Python version."""
    stored = json.loads(budget.read_text()) if budget.exists() else {}
    ours = stored.setdefault(python_version(), {})
    ours["distributed"] = version("distributed")
    ours.setdefault("alone", {}).update(alone)
    for workload, result in results.items():
        ours.setdefault(workload, {}).update(medians(result))
    budget.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tasks", type=int, nargs=2, default=[500, 3500])
    parser.add_argument("--quick", action="store_true", help="one round, for the budget")
    parser.add_argument("--workload", choices=WORKLOADS, action="append")
    parser.add_argument("--arm", action="append", choices=[*USUAL, *PARTS, *OPTIONS])
    parser.add_argument("--parts", action="store_true", help="also with each part left out")
    parser.add_argument("--options", action="store_true", help="also with each option")
    parser.add_argument(
        "--alone", action="store_true", help="only the parts that are counted alone"
    )
    parser.add_argument("--budget", type=Path, help="file of stored figures to compare with")
    parser.add_argument("--keep", type=Path, help="file to store the figures in")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        arm, workload, *counts = options.child
        _run_forks(arm, workload, [int(count) for count in counts])
        return []
    if shutil.which("valgrind") is None:
        print("valgrind not found (apt-get install valgrind): no instructions are counted")
        return []
    if options.quick:
        options.rounds, options.tasks, options.arm = 1, [200, 2000], options.arm or ["dasfprof"]
    arms = ["none", *(arm for arm in options.arm or USUAL if arm != "none")]
    arms += [*(PARTS if options.parts else ()), *(OPTIONS if options.options else ())]
    sizes = (options.tasks[0], options.tasks[1])
    _run_child("dasfprof", "no-op tasks", [1])  # compiles the package if needed
    alone = count_alone() if options.quick or options.alone else {}
    for part, count in alone.items():
        print(f"{part}, alone: {count:,} instructions per task", flush=True)
    results = {}
    for workload in [] if options.alone else options.workload or ["no-op tasks"]:
        results[workload] = measure(arms, workload, sizes, options.rounds)
        print(results[workload].show(), flush=True)
    if options.keep:
        keep(results, alone, options.keep)
    if options.budget and not check_budget(results, alone, options.budget, sizes):
        raise SystemExit(1)
    return list(results.values())


if __name__ == "__main__":
    main()
