"""Whether the cluster that ``cluster_sizing(deadline=)`` chooses meets the deadline, for how much.

``sized.py [--times 3] [NAME ...]`` records small programs on two workers of one
thread, asks for the cheapest cluster that meets deadlines of their own, and runs them on that many
workers, one less and one more, of up to eight. Their tasks sleep, so that two cores are enough.
Prints how many of the runs on the choice were in time, and what they cost, as a share of the
cheapest of the three that was in time nine times of ten.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client, LocalCluster

import dasfprof

MOST = 8
PROGRAMS: dict[str, tuple[Callable[[Client], object], float]] = {}


def within(share: float) -> Callable[..., Any]:
    """Register a program, and the share of its recorded time that is its deadline."""

    def register(run: Callable[[Client], object]) -> Callable[[Client], object]:
        PROGRAMS[run.__name__] = run, share
        return run

    return register


def sleeps(number: int, seconds: float, *_: Any) -> int:
    """Wait."""
    time.sleep(seconds)
    return number


@within(0.45)
def alike(client: Client) -> object:
    return client.gather(client.map(sleeps, range(60), seconds=0.2))


@within(0.7)
def alike_slower(client: Client) -> object:
    return client.gather(client.map(sleeps, range(60), seconds=0.2))


@within(0.35)
def uneven(client: Client) -> object:
    seconds = [0.05 + 0.1 * (number % 4) for number in range(60)]
    return client.gather(client.map(sleeps, range(60), seconds))


@within(0.4)
def random_lengths(client: Client) -> object:
    lengths = random.Random(1)
    return client.gather(
        client.map(sleeps, range(80), [lengths.expovariate(1 / 0.15) for _ in range(80)])
    )


@within(0.55)
def two_stages(client: Client) -> object:
    first = client.map(sleeps, range(40), seconds=0.15)
    client.gather(first)
    return client.gather(client.map(sleeps, range(40), seconds=0.1))


@within(0.6)
def then_together(client: Client) -> object:
    parts = client.map(sleeps, range(48), seconds=0.15)
    return client.submit(sleeps, 0, 0.5, *parts).result()


@within(0.5)
def in_pairs(client: Client) -> object:
    parts = client.map(sleeps, range(32), seconds=0.2)
    while len(parts) > 1:
        parts = [client.submit(sleeps, 1, 0.1, *parts[n : n + 2]) for n in range(0, len(parts), 2)]
    return parts[0].result()


@within(0.6)
def chains(client: Client) -> object:
    parts = client.map(sleeps, range(12), seconds=0.15)
    for _ in range(3):
        parts = [client.submit(sleeps, part, 0.15, pure=False) for part in parts]
    return client.gather(parts)


@within(0.5)
def short_and_long(client: Client) -> object:
    seconds = [0.8] * 4 + [0.1] * 60
    return client.gather(client.map(sleeps, range(64), seconds))


@within(0.5)
def small_ones(client: Client) -> object:
    return client.gather(client.map(sleeps, range(400), seconds=0.03))


def measured(name: str, workers: int, directory: str | None = None) -> tuple[float, Any]:
    """Run a program; return its seconds, and its run if it is recorded."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        client.submit(sleeps, 0, 0.0, pure=False).result()
        run = None
        if directory is not None:
            run = dasfprof.register_default_profiler(client, name=name, directory=directory)
        begin = time.perf_counter()
        PROGRAMS[name][0](client)
        seconds = time.perf_counter() - begin
        if run is not None:
            run.stop()
        return seconds, run


def size(name: str, times: int) -> str:
    """Ask for the cluster of a program, run it and its neighbours, and say what came of it."""
    with tempfile.TemporaryDirectory() as directory:
        seconds, run = measured(name, 2, directory)
        deadline = PROGRAMS[name][1] * seconds
        table = run.analyser().cluster_sizing(deadline=deadline, price=3600.0)
    best = table.iloc[0]
    in_time = best["At Most (s)"] <= deadline
    if not in_time or best["Workers"] > MOST:
        return f"{name:18}{deadline:9.2f}  none up to {MOST} workers: {best['Verdict']}"
    chosen = int(best["Workers"])
    taken: dict[int, list[float]] = {}
    for _ in range(times):
        for workers in range(max(chosen - 1, 1), min(chosen + 1, MOST) + 1):
            taken.setdefault(workers, []).append(measured(name, workers)[0])
    cost = {workers: workers * statistics.mean(each) for workers, each in taken.items()}
    meets = [w for w, each in taken.items() if sum(t <= deadline for t in each) >= 0.9 * times]
    cheapest = min((cost[w] for w in meets), default=float("nan"))
    met = sum(t <= deadline for t in taken[chosen])
    mean = statistics.mean(taken[chosen])
    return (
        f"{name:18}{deadline:9.2f}{chosen:9}{best['Likely (s)']:8.2f}{mean:8.2f}"
        f"{met:4} of {times}{cost[chosen] / cheapest - 1:9.1%}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args(arguments)
    print(
        f"{'program':18}{'deadline':>9}{'workers':>9}{'likely':>8}{'took':>8}{'in time':>9}", end=""
    )
    print(f"{'dearer':>9}")
    for name in options.programs or PROGRAMS:
        print(size(name, options.times), flush=True)


if __name__ == "__main__":
    main()
