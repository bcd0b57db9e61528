"""Whether trying what findings say finds the gains that there are, and claims no others.

``tried.py [--time-limit 600] [NAME ...]`` tries programs of ``followed.py``:
those whose remedy is a setting of their cluster, by what their findings say, and those that look
alike, by what the others' findings say; and programs of its own, whose remedy is a variable, a
setting of Dask's config, or a parameter of theirs that says how large chunks or batches are. To
persist is no setting. Prints what each gained, and what was promised.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import dask.array as da
import followed
import numpy as np
from distributed import Client

import dasfprof
from dasfprof.analysis.comparison.trial import Trial
from dasfprof.errors import TrialError

#: Programs that gain by a setting, and those that do not, with what is tried of them.
GAIN = (
    *("service", "uneven_service", "one_lock", "a_lock_half_of_the_time"),
    *("each_with_each", "neighbours", "keeps_more_than_fits", "two_threads_keep_more_than_fits"),
    *("two_threads_of_python", "four_threads_of_python"),
)
NONE: dict[str, dict[str, int]] = {
    "a_thread_for_each": {"threads_per_worker": 8},
    "as_many_as_threads": {"threads_per_worker": 4},
    "no_lock": {"n_workers": 4, "threads_per_worker": 1},
    "two_threads_that_sleep": {"n_workers": 2, "threads_per_worker": 1},
    "keeps_what_fits": {"memory_limit": 2**32},
    "chains_side_by_side": {"threads_per_worker": 4},
}


@dataclass(frozen=True)
class Own:
    """A program whose remedy is no option of its cluster."""

    run: Callable[[Client], object]
    cluster: tuple[int, int]
    #: What it begins with, as variables; and the one that says how large its pieces are.
    environment: Mapping[str, str]
    parameter: str = ""


def few_rows(_: Client) -> object:
    """Add and multiply chunks of a few rows."""
    x = da.ones((6000, 100), chunks=(int(os.environ["ROWS"]), 100))
    with dask.config.set({"optimization.fuse.active": False}):
        return float(((x + 1).map_blocks(np.sqrt) * 2).sum().compute())


def count_up(numbers: list[int]) -> int:
    """Do a little for each number."""
    return sum(numbers)


def small_batches(client: Client) -> object:
    """Send a task for each number, or for as many as a batch has."""
    size = int(os.environ["BATCH"])
    batches = [list(range(n, min(n + size, 3000))) for n in range(0, 3000, size)]
    return sum(client.gather(client.map(count_up, batches)))


def multiply(number: int) -> float:
    """Multiply matrices, with as many threads as the library starts."""
    matrix = np.random.default_rng(number).random((500, 500))
    for _ in range(12):
        matrix = matrix @ matrix.T / 500.0
    return float(matrix[0, 0])


def library_threads(client: Client) -> object:
    """Multiply on as many workers as there are cores, each with threads of the library's own."""
    return sum(client.gather(client.map(multiply, range(32))))


def behind_a_long_one(client: Client) -> object:
    """Send small tasks behind a long one, though another worker could have them."""
    seconds = [0.15] * 14 + [2.5] + [0.15] * 17
    return sum(client.gather(client.map(followed.wait, range(32), seconds)))


OWN = {
    "few_rows": Own(few_rows, (1, 2), {"ROWS": "5"}, "ROWS"),
    "small_batches": Own(small_batches, (1, 2), {"BATCH": "1"}, "BATCH"),
    "library_threads": Own(library_threads, (2, 1), {"OMP_NUM_THREADS": "8"}),
    "behind_a_long_one": Own(
        behind_a_long_one,
        (2, 1),
        {
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "10.0",
            "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
        },
    ),
}


def work_of_own(client: Client, name: str) -> object:
    """Run one of them as it is."""
    client.wait_for_workers(1)
    client.run(followed.wait, 0, 0.0)
    return OWN[name].run(client)


def try_own(name: str, time_limit: float) -> Trial:
    """Try what findings say of a program whose remedy is no option of its cluster."""
    own = OWN[name]
    cluster = {"n_workers": own.cluster[0], "threads_per_worker": own.cluster[1]}
    function, had = partial(work_of_own, name=name), dict(os.environ)
    os.environ.update(own.environment)
    try:
        return dasfprof.try_(
            function, cluster=cluster, time_limit=time_limit, parameter=own.parameter
        )
    finally:
        os.environ.clear()
        os.environ.update(had)


def work(client: Client, name: str) -> None:
    """Run a program as it is."""
    program = {**followed.PROGRAMS, **followed.ALIKE}[name]
    client.wait_for_workers(1)
    client.run(followed.wait, 0, 0.0)  # loads the module, which is none of the program's work
    program.run(client, False)


def try_program(name: str, time_limit: float) -> Trial:
    """Try what the program's findings say; of those that look alike what the others' do."""
    if name in OWN:
        return try_own(name, time_limit)
    program = {**followed.PROGRAMS, **followed.ALIKE}[name]
    workers, threads = program.cluster
    cluster: dict[str, Any] = {"n_workers": workers, "threads_per_worker": threads}
    cluster |= {"processes": program.processes, "silence_logs": logging.CRITICAL}
    if program.processes:
        cluster["memory_limit"] = program.memory
    function = partial(work, name=name)
    # None of those that look alike is what the change would cure.
    return dasfprof.try_(function, NONE.get(name), cluster=cluster, time_limit=time_limit)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME")
    parser.add_argument("--time-limit", type=float, default=600.0)
    options = parser.parse_args(arguments)
    print(f"{'program':32}{'verdict':14}{'gained':>8}{'95 %':>16}{'of':>8}{'promised':>10}  change")
    for name in options.programs or (*GAIN, *OWN, *NONE):
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
    # So that workers find its functions by their names.
    from tried import main as main_by_name

    main_by_name()
