"""Bytes on disk for each recorded task run: the files of workers and scheduler together."""

from __future__ import annotations

import argparse
import tempfile

import dask
from bench_overhead import WORKLOADS
from distributed import Client, LocalCluster
from measure import Result

import dasfprof


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(arguments)
    columns = ["workload", "task runs", "bytes a task run", "of it resources"]
    result = Result("File size", columns)
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": "inf"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name, (function, count) in WORKLOADS.items():
            with (
                tempfile.TemporaryDirectory() as directory,
                dasfprof.profile(client, directory=directory) as run,
            ):
                function(client, count)
                run.stop()
                sizes = {path.name: path.stat().st_size for path in run.files()}
                runs = sum(event.name == "Compute" for event in run.database())
            resources = sum(size for path, size in sizes.items() if "ResourceMonitor" in path)
            total = sum(sizes.values())
            cells = [f"{runs:,}", f"{total / runs:.0f}", f"{resources / runs:.0f}"]
            result.rows.append([name, *cells])
            result.figures[name] = {"task_runs": runs, "bytes": sizes}
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
