"""Whether trying suggestions finds the gains that exist, and claims no others.

``tried.py [--time-limit 600] [NAME ...]`` tries the suggestions for three sets of small programs.
In the first, the remedy is a setting of the cluster. The programs of the second look similar, but
the same settings do not help. In the third, the remedy is an environment variable, a setting of
Dask's config, or a parameter for the size of chunks or batches. Most tasks sleep, so that other
programs hardly matter. Prints the time saved and the potential savings of each program.
"""

import argparse
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client
from distributed import wait as wait_for

import dasfprof
from dasfprof.analysis.comparison.trial import Trial
from dasfprof.errors import TrialError


@dataclass(frozen=True)
class Program:
    """Program, and the cluster on which it is tried."""

    run: Callable[[Client], object]
    #: Number of workers, and of threads per worker.
    cluster: tuple[int, int]
    #: Whether workers are separate processes, and their memory limit (bytes), 0 for none.
    processes: bool = False
    memory: int = 0
    #: Settings to try. By default, these are the suggestions of the program's findings.
    change: Mapping[str, int] = field(default_factory=dict)
    #: Environment variables of the program, and the name of the variable that sets its chunk size.
    environment: Mapping[str, str] = field(default_factory=dict)
    parameter: str = ""


PROGRAMS: dict[str, Program] = {}


def on(workers: int, threads: int, **how: Any) -> Callable[..., Any]:
    def register(run: Callable[[Client], object]) -> Callable[[Client], object]:
        PROGRAMS[run.__name__] = Program(run, (workers, threads), **how)
        return run

    return register


def wait(number: int, seconds: float = 0.1, *_: Any) -> int:
    time.sleep(seconds)
    return number


@on(2, 1)
def service(client: Client) -> object:
    """Wait for a network service; more threads can wait for several answers in parallel."""
    return client.gather(client.map(wait, range(40), seconds=0.15))


LOCK = threading.Lock()


def locked(number: int) -> int:
    """Sleep while holding a lock of the process."""
    with LOCK:
        time.sleep(0.08)
    return number


@on(2, 3, processes=True)
def one_lock(client: Client) -> object:
    return client.gather(client.map(locked, range(40)))


def block(number: int, megabytes: float) -> Any:
    return np.full(int(megabytes * 125_000), float(number))


def total(part: Any) -> float:
    return float(part.sum())


def both(left: Any, right: Any) -> float:
    return float(left[0] + right[0])


@on(2, 1, processes=True)
def each_with_each(client: Client) -> object:
    """Combine each of eight blocks with each other, so that half of them are transferred."""
    parts = client.map(block, range(8), megabytes=40.0)
    wait_for(parts)
    pairs = [(left, right) for left in parts for right in parts if left.key < right.key]
    return client.gather([client.submit(both, *pair) for pair in pairs])


@on(2, 1, processes=True, memory=400_000_000)
def keeps_more_than_fits(client: Client) -> None:
    """Use 800 MB twice with a memory limit of 480 MB."""
    parts = client.map(block, range(40), megabytes=20.0)
    for _ in range(2):
        client.gather(client.map(total, parts, pure=False))


def counts_in_python(number: int) -> int:
    found = number
    for step in range(1_500_000):
        found = (found + step) % 1_000_003
    return found


@on(1, 2, processes=True)
def two_threads_of_python(client: Client) -> object:
    return client.gather(client.map(counts_in_python, range(24), pure=False))


@on(2, 2, change={"threads_per_worker": 4})
def as_many_as_threads(client: Client) -> object:
    return client.gather(client.map(wait, range(4), seconds=1.5))


@on(1, 4, processes=True, change={"n_workers": 4, "threads_per_worker": 1})
def no_lock(client: Client) -> object:
    return client.gather(client.map(wait, range(60), seconds=0.15))


@on(2, 1, processes=True, change={"memory_limit": 2**32})
def keeps_what_fits(client: Client) -> None:
    keeps_more_than_fits(client)


@on(2, 2, change={"threads_per_worker": 4})
def chains_side_by_side(client: Client) -> None:
    ends: list[Any] = [None] * 4
    for n in range(12):
        ends = [client.submit(wait, 4 * n + k, 0.15, end) for k, end in enumerate(ends)]
    client.gather(ends)


@on(1, 2, environment={"ROWS": "5"}, parameter="ROWS")
def few_rows(_: Client) -> object:
    x = da.ones((6000, 100), chunks=(int(os.environ["ROWS"]), 100))
    with dask.config.set({"optimization.fuse.active": False}):
        return float(((x + 1).map_blocks(np.sqrt) * 2).sum().compute())


def count_up(numbers: list[int]) -> int:
    return sum(numbers)


@on(1, 2, environment={"BATCH": "1"}, parameter="BATCH")
def small_batches(client: Client) -> object:
    size = int(os.environ["BATCH"])
    batches = [list(range(n, min(n + size, 3000))) for n in range(0, 3000, size)]
    return sum(client.gather(client.map(count_up, batches)))


def multiply(number: int) -> float:
    matrix = np.random.default_rng(number).random((500, 500))
    for _ in range(12):
        matrix = matrix @ matrix.T / 500.0
    return float(matrix[0, 0])


@on(2, 1, environment={"OMP_NUM_THREADS": "8"})
def library_threads(client: Client) -> object:
    """Multiply on one worker per core, each of which also uses threads of the library."""
    return sum(client.gather(client.map(multiply, range(32))))


_SCHEDULER = "DASK_DISTRIBUTED__SCHEDULER__"


@on(
    2,
    1,
    environment={f"{_SCHEDULER}WORKER_SATURATION": "10.0", f"{_SCHEDULER}WORK_STEALING": "False"},
)
def behind_a_long_one(client: Client) -> object:
    """Assign small tasks to the worker with a long one, although another worker could run them."""
    seconds = [0.15] * 14 + [2.5] + [0.15] * 17
    return sum(client.gather(client.map(wait, range(32), seconds)))


def work(client: Client, name: str) -> object:
    client.wait_for_workers(1)
    client.run(wait, 0, 0.0)  # loads the module before the measurement
    return PROGRAMS[name].run(client)


def try_program(name: str, time_limit: float) -> Trial:
    """Try the suggestions of a program's findings or, if given, the program's `change`."""
    program = PROGRAMS[name]
    workers, threads = program.cluster
    cluster: dict[str, Any] = {"n_workers": workers, "threads_per_worker": threads}
    cluster["silence_logs"] = logging.CRITICAL
    if not program.environment:
        cluster["processes"] = program.processes
    if program.processes:
        cluster["memory_limit"] = program.memory
    function, had = partial(work, name=name), dict(os.environ)
    os.environ.update(program.environment)
    options: dict[str, Any] = {"time_limit": time_limit, "parameter": program.parameter}
    try:
        return dasfprof.try_(function, program.change or None, cluster=cluster, **options)
    finally:
        os.environ.clear()
        os.environ.update(had)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    parser.add_argument("--time-limit", type=float, default=600.0)
    options = parser.parse_args(arguments)
    print(f"{'program':32}{'verdict':14}{'gained':>8}{'95 %':>16}{'of':>8}{'promised':>10}  change")
    for name in options.programs or PROGRAMS:
        try:
            trial = try_program(name, options.time_limit)
        except TrialError as error:
            print(f"{name:32}{error}", flush=True)
            continue
        by = f"{trial.words} ({trial.rule or 'asked for'})" if trial.change else trial.obstacle
        line = f"{name:32}{trial.kind:14}"
        if trial.gain is None:
            print(f"{line}{'':42}  {by} {trial.obstacle}", flush=True)
            continue
        gain = trial.gain
        within = f"{gain.low:.2f} to {gain.high:.2f}"
        line += f"{gain.seconds:8.2f}{within:>16}{gain.before:8.2f}{trial.promised:10.2f}"
        print(f"{line}  {by}, {len(trial.runs)} runs", flush=True)


if __name__ == "__main__":
    # Import this file as a module, so that workers find its functions by name.
    from tried import main as main_by_name

    main_by_name()
