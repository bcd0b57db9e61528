"""Whether programs with the settings from ``dasfprof tune`` are as fast as with the best settings.

``tuned.py [--times 3] [--time-limit 300] [NAME ...]`` tunes small programs of 2 to 4 s. Then it
runs each with all settings of the grid in turn, ``--times`` times, and prints how much longer the
median is with the chosen settings than with the best ones. If tuning does not change the settings,
or is uncertain, the choice is the unchanged program.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tried
from distributed import Client

from dasfprof.handles.trial.runs import PLAIN, ProgramRuns, Variant
from dasfprof.handles.trial.settings import Settings
from dasfprof.handles.trial.trial import program_of
from dasfprof.handles.trial.tuning import Tuner

#: Numbers of workers and threads to compare.
GRID = [(workers, threads) for workers in (1, 2) for threads in (1, 2, 4)]
#: Programs with their unchanged cluster. Some are from `tried.py`.
PROGRAMS: dict[str, tuple[Callable[[Client], object], tuple[int, int]]] = {
    name: (tried.PROGRAMS[name].run, tried.PROGRAMS[name].cluster)
    for name in ("service", "two_threads_of_python", "one_lock", "each_with_each")
}


def on(workers: int, threads: int) -> Callable[..., Any]:
    def register(run: Callable[[Client], object]) -> Callable[[Client], object]:
        PROGRAMS[run.__name__] = run, (workers, threads)
        return run

    return register


def sleeps(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def sorts(number: int, length: int = 1_500_000) -> float:
    """Compute in NumPy, which releases the GIL."""
    values = np.random.default_rng(number).random(length)
    values.sort()
    return float(values[length // 2])


@on(2, 2)
def tiny_tasks(client: Client) -> object:
    return sum(client.gather(client.map(sleeps, range(1000), [0.0] * 1000)))


@on(1, 1)
def sorting(client: Client) -> object:
    return sum(client.gather(client.map(sorts, range(20))))


@on(1, 2)
def a_chain(client: Client) -> object:
    future = client.submit(sleeps, 1, 0.2, pure=False)
    for _ in range(9):
        future = client.submit(sleeps, future, 0.2, pure=False)
    return future.result()


@on(2, 2)
def two_stages(client: Client) -> object:
    first = client.map(sorts, range(10), length=800_000)
    second = client.map(sleeps, range(10), [0.2] * 10)
    return sum(client.gather(first)) + sum(client.gather(second))


def work(client: Client, name: str) -> object:
    """Run a program."""
    client.wait_for_workers(1)
    client.run(sleeps, 0, 0.0)  # loads the module before the measurement
    return PROGRAMS[name][0](client)


def tune(name: str, times: int, limit: float) -> str:
    """Tune a program, run the grid, and return a line with the result."""
    _, (workers, threads) = PROGRAMS[name]
    cluster = {"n_workers": workers, "threads_per_worker": threads, "silence_logs": logging.ERROR}
    with tempfile.TemporaryDirectory() as place:
        program = program_of(partial(work, name=name), cluster, Path(place))
        runs = ProgramRuns(program, Path(place, "runs"), Path(place, "traces"), limit, 1e-6)
        grid: dict[str, Sequence[Any]] = {
            "n_workers": sorted({count for count, _ in GRID}),
            "threads_per_worker": sorted({count for _, count in GRID}),
        }
        tuning = Tuner(runs, grid).tune()
        tuned_with = runs.count
        settings = {"n_workers": workers, "threads_per_worker": threads, **tuning.settings}
        chosen = int(settings["n_workers"]), int(settings["threads_per_worker"])
        truth = ProgramRuns(program, Path(place, "truth"), Path(place, "all"), 3600.0, 1e-6)
        truth.begin()
        seconds: dict[tuple[int, int], list[float]] = {}
        for turn in range(times):
            for size in [*dict.fromkeys([*GRID, chosen, (workers, threads)])][:: (1, -1)[turn % 2]]:
                change = {"n_workers": size[0], "threads_per_worker": size[1]}
                side = (
                    PLAIN if size == (workers, threads) else Variant(Settings.of(change), "", "all")
                )
                seconds.setdefault(size, []).append(truth.run(side).seconds)
    medians = {size: statistics.median(each) for size, each in seconds.items()}
    best = min(medians, key=medians.__getitem__)
    over = medians[chosen] / medians[best] - 1
    return (
        f"{name:24}{tuning.kind:14}{_size(chosen):>6}{medians[chosen]:8.2f}{_size(best):>8}"
        f"{medians[best]:8.2f}{over:8.1%}{medians[workers, threads]:8.2f}{tuned_with:6}"
    )


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=300.0)
    options = parser.parse_args(arguments)
    columns = f"{'choice':>6}{'s':>8}{'best':>8}{'s':>8}{'over':>8}{'as is':>8}{'runs':>6}"
    print(f"{'program':24}{'verdict':14}{columns}")
    for name in options.programs or PROGRAMS:
        print(tune(name, options.times, options.time_limit), flush=True)


if __name__ == "__main__":
    # Import this file as a module, so that workers find its functions by name.
    from tuned import main as main_by_name

    main_by_name()
