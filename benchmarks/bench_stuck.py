"""Duration of `dasfprof stuck` on a cluster, with and without workers that do not answer.

Each worker runs a task that waits for an Event that is never set. In the second case, half of the
worker processes are stopped (SIGSTOP). All processes share this machine's cores; on a real cluster,
workers have separate cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time

import dask
from distributed import Client, Event, LocalCluster
from measure import Result, spread

#: Seconds for which tasks wait before the command runs: it does not report short waits as causes.
AGE = 10.0


def wait_forever(number: int) -> None:
    Event("nobody-sets-it").wait()


def run_command(address: str, workers: int, stopped: int) -> tuple[float, float]:
    """Run the command, and return its duration and CPU time in seconds."""
    command = [sys.executable, "-m", "dasfprof", "stuck", address, "--json"]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    causes = json.loads(done.stdout)["causes"]
    waiting = [cause for cause in causes if "nobody-sets-it" in cause["text"]]
    # Nothing is known about the tasks of stopped workers.
    assert sum(len(cause["keys"]) for cause in waiting) == workers - stopped, causes
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    name, workers = f"dasfprof stuck on {options.workers} worker processes", options.workers
    result = Result(name, ["stopped workers", "seconds (quartiles)", "CPU of the command (s)"])
    # The workers are forked from a process that has imported Dask, so that they start quickly.
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        pids = list(client.run(os.getpid).values())
        futures = client.map(wait_forever, range(workers), pure=False)
        while sum(len(tasks) for tasks in client.processing().values()) < workers:
            time.sleep(0.1)
        time.sleep(AGE)
        for stopped in ([], pids[::2]):
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            results = [
                run_command(cluster.scheduler_address, workers, len(stopped))
                for _ in range(options.rounds)
            ]
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            seconds, cpu = zip(*results, strict=True)
            result.figures[f"{len(stopped)} stopped"] = {"seconds": seconds, "cpu": cpu}
            cell = "{:.1f} ({:.1f} to {:.1f})".format(*spread(seconds))
            result.rows.append([str(len(stopped)), cell, f"{spread(cpu)[0]:.1f}"])
        Event("nobody-sets-it").set()
        del futures
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
