"""CPU time per no-op task on Dask's local schedulers, with and without recording in turn."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial

import dask
from measure import Result, interleave, ratios, spread

import dasfprof

SCHEDULERS = ("sync", "threads")
COLUMNS = ["scheduler", "variant", "CPU per task, us (quartiles)", "ratio (quartiles)"]


def computed(scheduler: str, tasks: int) -> float:
    """Return the CPU seconds per task of a computation."""
    delayed = [dask.delayed(abs, pure=False)(number) for number in range(tasks)]
    begin = time.process_time()
    dask.compute(*delayed, scheduler=scheduler)
    return (time.process_time() - begin) / tasks


def recorded(scheduler: str, tasks: int) -> float:
    """Return the CPU seconds per task of a recorded computation."""
    with tempfile.TemporaryDirectory() as directory, dasfprof.profile(directory=directory):
        return computed(scheduler, tasks)


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tasks", type=int, default=4000)
    options = parser.parse_args(arguments)
    result = Result("Without a cluster", COLUMNS)
    for scheduler in SCHEDULERS:
        variants: dict[str, Callable[[], float]] = {
            name: partial(measure, scheduler, options.tasks)
            for name, measure in (("none", computed), ("dasfprof", recorded))
        }
        measured = interleave(variants, options.rounds)
        times = ratios(measured, "none")
        for name, seconds in measured.items():
            middle, low, high = (value * 1e6 for value in spread(seconds))
            ratio, lowest, highest = spread(times[name])
            result.rows.append(
                [
                    scheduler,
                    name,
                    f"{middle:.1f} ({low:.1f} to {high:.1f})",
                    f"x{ratio:.2f} ({lowest:.2f} to {highest:.2f})",
                ]
            )
        result.figures[scheduler] = measured
    print(result.show())
    return [result]


if __name__ == "__main__":
    main()
