"""CPU time per task of NVTX ranges, without a profiling tool and with a tool that does nothing.

Dask's function that runs a task is called like in a worker's thread, with and without the plugin in
each round. The CPU time of the calling thread is measured. Each case has a separate process,
because NVTX looks for a tool only at its first use in a process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import distributed.worker
from dask._task_spec import Task
from distributed import LocalCluster
from measure import Result, interleave, spread
from native import build, run_apart

from dasfprof.recording.plugins.nvtx import GPUAnnotationPlugin
from dasfprof.recording.settings import RunSettings, make_settings

CALLS = 2000


async def measure_here(rounds: int) -> list[list[float]]:
    """Return the seconds per task of each round, without and with the plugin."""
    with tempfile.TemporaryDirectory() as directory:
        return await _measure(make_settings(name="bench", directory=directory), rounds)


async def _measure(settings: RunSettings, rounds: int) -> list[list[float]]:
    async with LocalCluster(
        n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
    ) as cluster:
        worker: Any = cluster.workers[0]
        tasks = [Task(("work-" + "0" * 32, number), abs, number) for number in range(CALLS)]
        for number, task in enumerate(tasks):
            state = distributed.worker_state_machine.TaskState(task.key, run_id=number)
            worker.state.tasks[task.key] = state
        token = distributed.worker._worker_cvar.set(worker)
        plugin = GPUAnnotationPlugin(settings)
        original = distributed.worker._run_task_simple
        plugin.setup(worker)
        annotated = distributed.worker._run_task_simple

        def loop(run: Any) -> float:
            begin = time.thread_time()
            for task in tasks:
                run(task, {}, 0.0)
            return (time.thread_time() - begin) / CALLS

        gc.disable()
        measured = interleave(
            {"none": lambda: loop(original), "plugin": lambda: loop(annotated)}, rounds, warm_up=3
        )
        gc.enable()
        await plugin.teardown(worker)
        assert distributed.worker._run_task_simple is original
        distributed.worker._worker_cvar.reset(token)
        worker.state.tasks.clear()
    return [measured["none"], measured["plugin"]]


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--here", action="store_true", help="measure in this process, print JSON")
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(asyncio.run(measure_here(options.rounds))))
        return []
    result = Result("NVTX", ["case", "us per task more than without (quartiles)"])
    with tempfile.TemporaryDirectory() as directory:
        tool = build("nvtx.c", Path(directory) / "libnvtx-tool.so")
        cases = {
            "no tool attached": {},
            "a tool that does nothing": {"NVTX_INJECTION64_PATH": str(tool)},
        }
        for name, environment in cases.items():
            if environment and tool is None:
                continue
            child = ["--here", "--rounds", str(options.rounds)]
            none, plugin = run_apart(__file__, *child, **environment)
            difference = [(a - b) * 1e6 for a, b in zip(plugin, none, strict=True)]
            result.rows.append([name, "{:.2f} ({:.2f} to {:.2f})".format(*spread(difference))])
            result.figures[name] = difference
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main(sys.argv[1:])
