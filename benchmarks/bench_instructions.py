"""Instructions per task that recording adds: a figure that repeats where CPU seconds do not.

valgrind counts the instructions of one process that contains client, scheduler and worker. Start
and stop cost the same for few tasks as for many. The slope between two numbers of tasks therefore
gives instructions per task. Each process ends its measurement only when the scheduler has
forgotten all tasks, so that Dask's work to release them counts in every arm. Nothing happens by
the clock, because valgrind makes a second about 50 times as short: what does has its own
benchmarks (`bench_idle`, `bench_sampler`, `bench_sampling`, `bench_under_way`). The garbage
collector is off, since one full collection more or less is 2 to 4 % of the total. Instructions of
the kernel are not counted.

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
import json
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

from measure import Result, spread

#: Threshold (instructions per task): recording may cost this much more than the stored figure, one
#: percent of a task that does nothing. On a busy machine, three counts differed by 5,000.
ALLOWANCE = 30_000
#: The same for hooks that are counted alone, so that a hook of 10,000 instructions fails. On a busy
#: machine, counts of the same hooks differed by up to 2,500.
ALLOWANCE_ALONE = 7_000
#: How often a round is added before a figure above the budget is believed.
MORE_ROUNDS = 1
#: Arms, the first of which others are compared with. Those with "without" leave a part out.
USUAL = ("none", "empty plugins", "performance_report", "dasfprof")
PARTS = (
    "dasfprof without the worker's hooks",
    "dasfprof without the scheduler's hooks",
    "dasfprof without writing",
)
#: Parts whose hooks are called without a run, and whose rows are written, by this process alone.
ALONE = ("hooks of the worker", "hooks of the scheduler", "in a task's thread")
#: Keys of their task runs, how often each runs before rows are written, and numbers of runs.
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
#: What lets a process take as long as it takes.
PATIENT = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.scheduler.worker-ttl": None,
    "distributed.comm.timeouts.connect": "600s",
    "distributed.comm.timeouts.tcp": "600s",
}


# --- workloads: each runs about this many tasks, and returns how many -----------------------------


def no_op_tasks(client: Any, count: int) -> int:
    """Tasks of one function, which do nothing."""
    from distributed import wait

    wait(client.map(_nothing, range(count), pure=False))
    return count


def joining_tasks(client: Any, count: int) -> int:
    """Tasks with tuples as keys; each second one depends on three others."""
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
    """A mean by chunks: fused blocks and a tree of sums."""
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


# --- the process that is counted ------------------------------------------------------------------


def run_once(arm: str, workload: str, count: int) -> None:
    """Run a workload under an arm in this process; print its number of tasks."""
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
    print(f"tasks: {tasks}")


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
    import distributed.worker
    from distributed import Client, LocalCluster

    from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin
    from dasfprof.recording.plugins.tasks import WorkerTaskPlugin
    from dasfprof.recording.settings import make_settings

    _stop_clocks()
    _stop_our_clocks()
    gc.disable()
    with tempfile.TemporaryDirectory() as directory:
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
    print(f"tasks: {count}")


@contextmanager
def observed(arm: str, client: Any, directory: str) -> Iterator[None]:
    """Observe the block as the arm does."""
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
        # Looks at stacks come by the clock: there are none, but all is made ready for them.
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
    """Let nothing happen by the clock: how often it would, depends on what else the machine does.

    Threads change only where one waits; each message is sent at once, as where tasks take longer
    than the milliseconds for which Dask collects messages. What Dask calls periodically it calls in
    hours: its timers stay in the loop's queue, as others are sorted in among them.
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

    async def tell_nothing(self: Any) -> None: ...

    BatchedSend.__init__ = send_at_once
    PeriodicCallback.start = call_in_hours
    Cluster._sync_cluster_info = tell_nothing  # to the scheduler, each second


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
    """Let the recorder do nothing by the clock, and take each task for brief."""
    from dasfprof.recording.plugins import tasks
    from dasfprof.recording.task_runs import thread_time
    from dasfprof.recording.under_way import scheduler
    from dasfprof.recording.under_way.loop import Pulse

    thread_time.BRIEF = thread_time.STALE = tasks.LEAST = 600.0
    scheduler.INTERVAL = 600.0
    Pulse.__init__.__defaults__ = (600.0,)  # type: ignore[misc]


def _leave_out(part: str) -> None:
    """Replace a part of the recorder by nothing, in this process."""

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    if part == "the worker's hooks":
        from dasfprof.recording.plugins.tasks import WorkerTaskPlugin

        WorkerTaskPlugin._start = WorkerTaskPlugin.transition = nothing  # type: ignore[assignment]
    elif part == "the scheduler's hooks":
        from dasfprof.recording.plugins.scheduler import SchedulerTaskPlugin

        SchedulerTaskPlugin.transition = nothing  # type: ignore[assignment]
    elif part == "writing":
        from dasfprof.database.block_writer import BlockWriter

        BlockWriter.write = nothing  # type: ignore[method-assign, assignment]
    elif part:
        raise ValueError(f"no part is called {part!r}")


# --- counting -------------------------------------------------------------------------------------


def _run_child(
    arm: str, workload: str, count: int, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    # Without bytecode on disk, or while another program writes it, a process compiles the package:
    # up to 1.1e9 instructions, more than recording thousands of tasks takes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [*under, sys.executable, __file__, "--child", arm, workload, str(count)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def count_instructions(arm: str, workload: str, count: int) -> tuple[int, int]:
    """Return the instructions of a process under valgrind, and its number of tasks."""
    ran = _run_child(arm, workload, count, _VALGRIND)
    counted = re.search(r"I +refs: +([\d,]+)", ran.stderr)
    tasks = re.search(r"^tasks: (\d+)$", ran.stdout, re.MULTILINE)
    if ran.returncode or counted is None or tasks is None:
        raise RuntimeError(f"{arm}, {workload}: {ran.stdout[-500:]} {ran.stderr[-2000:]}")
    return int(counted[1].replace(",", "")), int(tasks[1])


def count_rounds(
    arms: list[str], workload: str, few: int, many: int, rounds: int
) -> dict[str, list[float]]:
    """Return instructions a task of each arm, one figure a round; as many at once as cores."""
    asked = [(arm, size) for _ in range(rounds) for arm in arms for size in (few, many)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        counted = list(pool.map(lambda one: count_instructions(one[0], workload, one[1]), asked))
    slopes: dict[str, list[float]] = {arm: [] for arm in arms}
    for (arm, _), low, high in zip(asked[::2], counted[::2], counted[1::2], strict=True):
        slopes[arm].append((high[0] - low[0]) / (high[1] - low[1]))
    return slopes


def count_alone() -> dict[str, int]:
    """Return the instructions a task run of each part that is called alone."""
    asked = [(part, size) for part in ALONE for size in (_FEW, _MANY)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        counted = list(pool.map(lambda one: count_instructions("alone", *one)[0], asked))
    slopes = zip(counted[::2], counted[1::2], strict=True)
    found = [round((high - low) / (_MANY - _FEW)) for low, high in slopes]
    return dict(zip(ALONE, found, strict=True))


def measure(arms: list[str], workload: str, sizes: tuple[int, int], rounds: int) -> Result:
    """Compare the arms on one workload."""
    slopes = count_rounds(arms, workload, *sizes, rounds)
    result = Result(
        f"Instructions of {workload}, medians of {rounds} rounds (least to most)",
        ["recorded by", "thousand instructions a task", "to the first", "of single rounds"],
    )
    base = statistics.median(slopes[arms[0]])
    for arm in arms:
        found = slopes[arm]
        singles = [value / other for value, other in zip(found, slopes[arms[0]], strict=True)]
        result.rows.append(
            [
                arm,
                f"{spread(found)[0] / 1e3:.0f} ({min(found) / 1e3:.0f} to {max(found) / 1e3:.0f})",
                f"x{statistics.median(found) / base:.3f}",
                f"{min(singles):.3f} to {max(singles):.3f}",
            ]
        )
    result.figures = {"rounds": rounds, "sizes": sizes, "instructions": slopes}
    return result


def medians(result: Result) -> dict[str, int]:
    """Return the median of each arm, in instructions a task."""
    return {
        arm: round(statistics.median(slopes))
        for arm, slopes in result.figures["instructions"].items()
    }


def python_version() -> str:
    """Return the Python that the figures belong to."""
    return ".".join(platform.python_version_tuple()[:2])


def check_budget(
    results: dict[str, Result], alone: dict[str, int], budget: Path, sizes: tuple[int, int]
) -> bool:
    """Return whether recording is within the kept figures."""
    kept = json.loads(budget.read_text()).get(python_version())
    if kept is None:
        print(f"{budget} keeps no figures of Python {python_version()}")
        return True
    within = [
        _told(part, count, kept["alone"].get(part), ALLOWANCE_ALONE)
        for part, count in alone.items()
    ]
    for workload, result in results.items():
        before = kept.get(workload)
        limit = before and _beyond(before)
        for _ in range(MORE_ROUNDS):
            if limit is None or _beyond(medians(result)) <= limit + ALLOWANCE:
                break
            more = count_rounds(["none", "dasfprof"], workload, *sizes, 1)
            for arm, slopes in more.items():
                result.figures["instructions"][arm] += slopes
        within.append(_told(workload, _beyond(medians(result)), limit, ALLOWANCE))
    print(f"kept with Dask {kept['distributed']}, counted with {version('distributed')}")
    return all(within)


def _told(what: str, count: int, limit: int | None, allowance: int) -> bool:
    """Print how a figure compares with the kept one, and return whether it is within."""
    if limit is None:
        print(f"{what}: {count:,} instructions a task, none kept")
        return True
    within = count <= limit + allowance
    print(
        f"{what}: {count:,} instructions a task, kept {limit:,}, allowed {limit + allowance:,}"
        + ("" if within else ": BEYOND THE BUDGET")
    )
    return within


def _beyond(counted: dict[str, int]) -> int:
    """Return the instructions a task of recording by default."""
    return counted["dasfprof"] - counted["none"]


def keep(results: dict[str, Result], alone: dict[str, int], budget: Path) -> None:
    """Write the instructions a task of all arms and parts as the budget of this Python."""
    kept = json.loads(budget.read_text()) if budget.exists() else {}
    ours = kept.setdefault(python_version(), {})
    ours["distributed"] = version("distributed")
    ours.setdefault("alone", {}).update(alone)
    for workload, result in results.items():
        ours.setdefault(workload, {}).update(medians(result))
    budget.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tasks", type=int, nargs=2, default=[500, 3500])
    parser.add_argument("--quick", action="store_true", help="one round, and what the budget needs")
    parser.add_argument("--workload", choices=WORKLOADS, action="append")
    parser.add_argument("--arm", action="append", choices=[*USUAL, *PARTS, *OPTIONS])
    parser.add_argument("--parts", action="store_true", help="also with each part left out")
    parser.add_argument("--options", action="store_true", help="also with each option")
    parser.add_argument("--alone", action="store_true", help="only what is called alone")
    parser.add_argument("--budget", type=Path, help="the kept figures to compare with")
    parser.add_argument("--keep", type=Path, help="where to keep the figures")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        arm, what, count = options.child
        if arm == "alone":
            asyncio.run(run_alone(what, int(count)))
        else:
            run_once(arm, what, int(count))
        return []
    if shutil.which("valgrind") is None:
        print("valgrind is not here (apt-get install valgrind): no instructions are counted")
        return []
    if options.quick:
        options.rounds, options.tasks, options.arm = 1, [200, 3000], options.arm or ["dasfprof"]
    arms = ["none", *(arm for arm in options.arm or USUAL if arm != "none")]
    arms += [*(PARTS if options.parts else ()), *(OPTIONS if options.options else ())]
    sizes = (options.tasks[0], options.tasks[1])
    _run_child("dasfprof", "no-op tasks", 1)  # compiles what was not compiled before
    alone = count_alone() if options.quick or options.alone else {}
    for part, count in alone.items():
        print(f"{part}, alone: {count:,} instructions a task", flush=True)
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
