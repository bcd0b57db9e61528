"""Whether trying what findings say finds the gains that there are, and claims no others.

``python tests/corpus/tried.py [--time-limit 600] [NAME ...]`` tries programs of ``followed.py``:
those whose remedy is a setting of their cluster, by what their findings say, and those that look
alike, by what the others' findings say. Prints what each gained, and what was promised.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import followed
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


def work(client: Client, name: str) -> None:
    """Run a program as it is."""
    program = {**followed.PROGRAMS, **followed.ALIKE}[name]
    client.wait_for_workers(1)
    client.run(followed.wait, 0, 0.0)  # loads the module, which is none of the program's work
    program.run(client, False)


def try_program(name: str, time_limit: float) -> Trial:
    """Try what the program's findings say; of those that look alike what the others' do."""
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
    for name in options.programs or (*GAIN, *NONE):
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
