"""What recording costs a task, in instructions: a figure that repeats where CPU seconds do not.

valgrind counts the instructions of one process with client, scheduler and worker. What start and
stop take is the same for few tasks as for many, so that it falls out of the difference:
instructions a task are the slope between two numbers of tasks. Nothing happens by the clock, or a
busy machine would count more; what does has benchmarks of its own (`bench_sampler`,
`bench_under_way`). The garbage collector is off, since one full collection more or less is 2 to 4 %
of all. Instructions of the kernel are not counted.

``--budget FILE`` compares with kept figures, and ends with 1 if recording by default has become
dearer by more than the file allows. ``--keep FILE`` writes such a file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from measure import Result, spread

#: Points of the ratio to "none" by which a landing may differ from the kept figure.
ALLOWANCE = 0.015
#: How often a round is added before a figure above the budget is believed.
MORE_ROUNDS = 3
#: Arms, the first of which others are compared with. Those with "without" leave a part out.
USUAL = ("none", "empty plugins", "performance_report", "dasfprof")
PARTS = (
    "dasfprof without the worker's hooks",
    "dasfprof without the scheduler's hooks",
    "dasfprof without writing",
)
OPTIONS: dict[str, dict[str, Any]] = {
    "dasfprof with stack_frequency=20": {"stack_frequency": 20},
    "dasfprof with arguments='values'": {"arguments": "values"},
    "dasfprof with arguments='off'": {"arguments": "off"},
    "dasfprof with record_code=False": {"record_code": False},
    "dasfprof with record_prints=True": {"record_prints": True},
    "dasfprof with log_level='debug'": {"log_level": "debug"},
    "dasfprof with ship='scheduler'": {"ship": "scheduler"},
}
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
            ) as cluster,
            Client(cluster) as client,
            observed(arm, client, directory),
        ):
            tasks = WORKLOADS[workload](client, count)
    print(f"tasks: {tasks}")


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
        context = dasfprof.profile(client, directory=directory, **settings, **OPTIONS.get(arm, {}))
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
    than the milliseconds for which Dask collects messages.
    """
    from distributed.batched import BatchedSend
    from tornado.ioloop import PeriodicCallback

    sys.setswitchinterval(600)
    start_collecting = BatchedSend.__init__

    def send_at_once(self: Any, interval: Any, *args: Any, **kwargs: Any) -> None:
        start_collecting(self, 0, *args, **kwargs)

    BatchedSend.__init__ = send_at_once
    PeriodicCallback.start = lambda self: None


def _stop_our_clocks() -> None:
    """Let the recorder do nothing by the clock, and take each task for brief."""
    from dasfprof.recording.task_runs import run_queue
    from dasfprof.recording.under_way import scheduler
    from dasfprof.recording.under_way.pulse import Pulse

    run_queue.BRIEF = run_queue.STALE = 600.0
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


def count_instructions(arm: str, workload: str, count: int) -> tuple[int, int]:
    """Return the instructions of a process under valgrind, and its number of tasks."""
    ran = subprocess.run(
        [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
            *(sys.executable, __file__, "--child", arm, workload, str(count)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
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


def ratio_of(result: Result, arm: str = "dasfprof") -> float:
    """Return the ratio of an arm's median to that of "none"."""
    found = result.figures["instructions"]
    return statistics.median(found[arm]) / statistics.median(found["none"])


def version_key() -> str:
    """Return the Python that the figures belong to."""
    return ".".join(platform.python_version_tuple()[:2])


def check_budget(result: Result, workload: str, budget: Path, sizes: tuple[int, int]) -> bool:
    """Return whether recording is within the kept figure; measure again before saying no."""
    kept = json.loads(budget.read_text()).get(version_key(), {}).get(workload)
    if kept is None:
        print(f"{budget} keeps no figure of {workload} on Python {version_key()}")
        return True
    found = result.figures["instructions"]
    for _ in range(MORE_ROUNDS):
        if ratio_of(result) <= kept["dasfprof"] + ALLOWANCE:
            break
        for arm, slopes in count_rounds(["none", "dasfprof"], workload, *sizes, 1).items():
            found[arm] += slopes
    within = ratio_of(result) <= kept["dasfprof"] + ALLOWANCE
    print(
        f"{workload}: x{ratio_of(result):.3f} in {len(found['none'])} rounds, kept "
        f"x{kept['dasfprof']:.3f}, allowed x{kept['dasfprof'] + ALLOWANCE:.3f}: "
        + ("within the budget" if within else "BEYOND THE BUDGET")
    )
    return within


def keep(results: dict[str, Result], budget: Path) -> None:
    """Write the ratios of all arms to "none" as the budget of this Python."""
    kept = json.loads(budget.read_text()) if budget.exists() else {}
    for workload, result in results.items():
        arms = result.figures["instructions"]
        ratios = {arm: round(ratio_of(result, arm), 4) for arm in arms if arm != "none"}
        kept.setdefault(version_key(), {}).setdefault(workload, {}).update(ratios)
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
    parser.add_argument("--budget", type=Path, help="the kept figures to compare with")
    parser.add_argument("--keep", type=Path, help="where to keep the figures")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        run_once(options.child[0], options.child[1], int(options.child[2]))
        return []
    if shutil.which("valgrind") is None:
        print("valgrind is not here (apt-get install valgrind): no instructions are counted")
        return []
    if options.quick:
        options.rounds, options.tasks, options.arm = 1, [200, 1700], options.arm or ["dasfprof"]
    arms = ["none", *(arm for arm in options.arm or USUAL if arm != "none")]
    arms += [*(PARTS if options.parts else ()), *(OPTIONS if options.options else ())]
    sizes = (options.tasks[0], options.tasks[1])
    results = {}
    for workload in options.workload or ["no-op tasks"]:
        results[workload] = measure(arms, workload, sizes, options.rounds)
        print(results[workload].show(), flush=True)
    if options.keep:
        keep(results, options.keep)
    if options.budget:
        checks = [check_budget(r, w, options.budget, sizes) for w, r in results.items()]
        if not all(checks):
            raise SystemExit(1)
    return list(results.values())


if __name__ == "__main__":
    main()
