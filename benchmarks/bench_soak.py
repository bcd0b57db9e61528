"""A soak: very many tasks through a small cluster; memory must stay flat and nothing be lost.

A million no-op tasks are about an hour's worth of events of a busy pipeline. Memory is compared
between the second quarter of the run and the last one, with the profiler and without it, because
Dask's own grows as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

import dask
import psutil
from bench_overhead import no_op_tasks
from distributed import Client, LocalCluster
from measure import Result

import dasfprof
from dasfprof.database import open_run

BATCH = 10_000


def resident(dask_worker: Any = None) -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def soak(client: Any, tasks: int) -> dict[str, list[int]]:
    """Compute in batches; give resident bytes after each, by process."""
    memory: dict[str, list[int]] = {"scheduler and client": [], "largest worker": []}
    for _ in range(tasks // BATCH):
        no_op_tasks(client, BATCH)
        memory["scheduler and client"].append(resident())
        memory["largest worker"].append(max(client.run(resident).values()))
    return memory


def growth(values: list[int]) -> float:
    """Give the growth from the second quarter of a run to its last, in MB."""
    quarter = max(1, len(values) // 4)
    late, early = values[-quarter:], values[quarter : 2 * quarter] or values[:quarter]
    return (statistics.median(late) - statistics.median(early)) / 1e6


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    columns = ["", "growth of scheduler and client, MB", "of the largest worker, MB", "recorded"]
    result = Result("Soak", columns, figures={"tasks": options.tasks})
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": "inf"}),
        tempfile.TemporaryDirectory() as directory,
    ):
        for name in ("without", "dasfprof"):
            with (
                LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                if name == "dasfprof":
                    with dasfprof.profile(client, directory=directory):
                        memory = soak(client, options.tasks)
                    batches = open_run(directory).batches()
                    runs = sum(batch.rows for _, batch in batches if batch.name == "Compute")
                    recorded = f"{runs:,} of {options.tasks:,}"
                else:
                    memory, recorded = soak(client, options.tasks), ""
            cells = [f"{growth(values):.0f}" for values in memory.values()]
            result.rows.append([name, *cells, recorded])
            result.figures[name] = memory
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
