"""How right `hot_lines` is: ``hot_lines_rates.py --seconds 60``, on a quiet machine.

Runs each program of `hot_programs` on a real worker, and compares the table with the stopwatches
inside of the program: the line that took most comes first; the lines' shares; how much of the
function's time was computing, and waiting for a core. With several threads, in a run of its own,
also how much of each line's time was computing, give or take what the table calls uncertain. Counts
the programs of which all that is right.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import hot_programs
import pandas as pd
from clusters import new_client
from distributed import Client
from hot_programs import BURSTS, PROGRAMS, TOGETHER, TURN, WAITING, Told, marks

import dasfprof

#: Points by which a share of a line may be off with one thread, and with several: a sampler that
#: waits for the GIL finds the line that gives it up.
ONE_THREAD, SEVERAL = 15.0, 15.0
#: Points by which the shares of tasks that run in turn may be off.
IN_TURN = 5.0
#: Points by which the shares of computing and of waiting for a core may be off.
WHOLE = 1.0
#: Tasks at a time of those that run together.
THREADS = 3
#: The share of the time of a line whose computing is compared.
FEW = 0.05
#: What is between marks.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Compared:
    """What the table and the stopwatches say of a program, in percent of its time."""

    #: By mark: of the table, and of the stopwatch.
    lines: dict[str, tuple[float, float]]
    #: The mark of the table's first line, and of the stopwatch.
    first: tuple[str, str]
    #: Computing, and waiting for a core where the kernel counts that.
    whole: dict[str, tuple[float, float]]
    #: If that was counted, which costs calls of the kernel where the core may be taken away: by
    #: mark, in percent of its own time, computing, and how uncertain the table is.
    computing: dict[str, tuple[float, float, float]]
    threads: int
    #: Looks that found the function.
    samples: int
    #: By how much a share of half may be off by chance, in 95 of 100 cases.
    chance: float
    #: The share for which the worker's thread had no core.
    starved: float

    @property
    def off(self) -> float:
        """The points by which the worst line is off."""
        return max(abs(one - other) for one, other in self.lines.values())

    @property
    def whole_off(self) -> float:
        """The points by which computing or waiting for a core is off."""
        return max(abs(one - other) for one, other in self.whole.values())

    @property
    def computing_off(self) -> float:
        """The points by which a line's computing is off, beyond what is uncertain."""
        off = (abs(one - other) - uncertain for one, other, uncertain in self.computing.values())
        return max(off, default=0.0)

    @property
    def first_is_right(self) -> bool:
        """Whether the table's first line is that of the stopwatch, or took about as long."""
        named, expected = self.first
        allowed = SEVERAL if self.threads > 1 else ONE_THREAD
        return named in self.lines and (self.lines[expected][1] - self.lines[named][1] <= allowed)

    @property
    def is_right(self) -> bool:
        allowed = SEVERAL if self.threads > 1 else ONE_THREAD
        if self.computing:
            return self.computing_off <= allowed
        return self.first_is_right and self.off <= allowed and self.whole_off <= WHOLE


@dataclass(frozen=True)
class Turns:
    """What the table and the stopwatches say of bursts and naps, in percent of their time."""

    #: By function and what it did: of the table, and of the stopwatch.
    parts: dict[str, dict[str, tuple[float, float]]]

    @property
    def off(self) -> float:
        """The points by which the worst is off."""
        both = (pair for parts in self.parts.values() for pair in parts.values())
        return max(abs(one - other) for one, other in both)

    @property
    def is_right(self) -> bool:
        """Whether all of it is right. The sampler itself takes the lock."""
        return self.off <= IN_TURN


def observe(
    client: Client, name: str, directory: Path, threads: int, seconds: float, counts: bool = False
) -> Compared:
    """Run a program in some threads of a worker, and compare."""
    client.submit(hot_programs.planted, name, 0.2, pure=False).result()  # it imports
    with dasfprof.profile(client, directory=directory) as run:
        futures = [
            client.submit(hot_programs.planted, name, seconds, counts, pure=False)
            for _ in range(threads)
        ]
        told = client.gather(futures)
    return compare(run.analyser(progress=False).hot_lines("planted"), told)


def observe_turns(client: Client, name: str, directory: Path, turns: int) -> Turns:
    """Run bursts and naps in turn on a worker of one thread, and compare."""
    client.submit(hot_programs.burst, name, pure=False).result()  # it imports
    with dasfprof.profile(client, directory=directory) as run:
        last, told = None, {"burst": [], "nap": []}
        for _ in range(turns):
            last = client.submit(hot_programs.burst, name, last, pure=False)
            told["burst"].append(last)
            last = client.submit(hot_programs.nap, last, pure=False)
            told["nap"].append(last)
        ended = {function: client.gather(futures) for function, futures in told.items()}
    analyser = run.analyser(progress=False)
    parts = {}
    for function, each in ended.items():
        table = analyser.hot_lines(function)
        wall = sum(one.whole for one in each)
        queued = [one.run_queue for one in each if one.run_queue is not None]
        lock = _percent(table, "Interpreter's Lock (s)")
        rest = 100 * (wall - sum(one.computing for one in each) - sum(queued)) / wall
        # What waits for nothing of its own has no other rest, as where threads of the process have
        # the lock and no core.
        known = 0.0 if function == "nap" or name in WAITING else min(max(rest, 0.0), lock)
        computing = 100 * sum(one.computing for one in each) / wall
        core = 100 * sum(queued) / wall if queued else float("nan")
        parts[function] = {
            "computing": (_percent(table, "Computing (s)"), computing),
            "waiting for a core": (_percent(table, "Waiting for CPU (s)"), core),
            "the lock": (lock, known),
        }
    return Turns(parts)


def compare(table: pd.DataFrame, told: list[Told]) -> Compared:
    """Compare what `hot_lines` says with what the tasks say."""
    threads, wall = len(told), sum(one.whole for one in told)
    computing = sum(one.computing for one in told)
    expected: dict[str, float] = {}
    for one in told:
        for mark, value in one.seconds.items():
            expected[mark] = expected.get(mark, 0.0) + value
    places = {(hot_programs.__file__, line): mark for line, mark in marks().items()}
    names = [
        places.get((file, line), ELSEWHERE)
        for file, line in zip(table["File"], table["Line"], strict=True)
    ]
    marked = {mark: seconds for mark, seconds in expected.items() if mark in names}
    marked[ELSEWHERE] = wall - sum(marked.values())
    by_mark = table.groupby(pd.Series(names, index=table.index)).sum(numeric_only=True)
    found = by_mark["Time (s)"]
    lines = {
        mark: (100 * found.get(mark, 0.0) / found.sum(), 100 * seconds / wall)
        for mark, seconds in marked.items()
    }
    whole = {"computing": (_percent(table, "Computing (s)"), 100 * computing / wall)}
    queued = [one.run_queue for one in told if one.run_queue is not None]
    if len(queued) == threads:
        core = _percent(table, "Waiting for CPU (s)")
        whole["waiting for a core"] = core, 100 * sum(queued) / wall
    longest = max(expected, key=lambda mark: expected[mark])
    samples = int(table["Samples"].sum())
    chance = 196 * (0.25 / max(samples, 1)) ** 0.5
    starved = 100 * sum(queued) / wall
    split = _computing_at(by_mark, told)
    return Compared(lines, (names[0], longest), whole, split, threads, samples, chance, starved)


def _computing_at(table: pd.DataFrame, told: list[Told]) -> dict[str, tuple[float, float, float]]:
    """Compare how much of each mark's time was computing, of those that took a twentieth of it."""
    shares = 100 * table[["Computing (s)", "Uncertain (s)"]].div(table["Time (s)"], axis=0)
    split = {}
    for mark in {mark for one in told for mark in one.computing_at} & {*table.index}:
        seconds = sum(one.seconds[mark] for one in told if mark in one.seconds)
        if seconds < FEW * sum(one.whole for one in told):
            continue
        computing = sum(one.computing_at.get(mark, 0.0) for one in told)
        found, uncertain = shares.loc[mark]
        split[mark] = float(found), 100 * computing / seconds, float(uncertain)
    return split


def _percent(table: pd.DataFrame, column: str) -> float:
    return float(100 * table[column].sum() / table["Time (s)"].sum())


def show(name: str, found: Compared) -> str:
    """Say in a line what was found."""
    lines = ", ".join(f"{mark} {one:.1f}/{other:.1f}" for mark, (one, other) in found.lines.items())
    whole = ", ".join(f"{what} {one:.1f}/{other:.1f}" for what, (one, other) in found.whole.items())
    verdict = "right" if found.is_right else "WRONG"
    if found.computing:
        each = (f"{m} {t:.0f}/{s:.0f} ± {u:.0f}" for m, (t, s, u) in found.computing.items())
        return f"{verdict} {name} x{found.threads}, computing of each line: {', '.join(each)}"
    first = "" if found.first_is_right else f"; first {found.first[0]}, not {found.first[1]}"
    threads = f" x{found.threads}" if found.threads > 1 else ""
    return (
        f"{verdict} {name + threads:20} lines off {found.off:4.1f} (chance {found.chance:.1f}), "
        f"whole off {found.whole_off:4.1f}{first}: {lines}; {whole}"
    )


def rates(programs: Iterable[str], seconds: float) -> tuple[int, int]:
    """Run programs; return how many were right, and how many there were."""
    right = number = 0
    with new_client(n_workers=1, threads_per_worker=THREADS) as client:
        for name in programs:
            together = ((THREADS, False), (THREADS, True)) if name in TOGETHER else ()
            for threads, counts in ((1, False), *together):
                with tempfile.TemporaryDirectory() as directory:
                    found = observe(client, name, Path(directory), threads, seconds, counts)
                print(show(name, found), flush=True)
                right, number = right + found.is_right, number + 1
    return right, number


def rates_in_turn(programs: Iterable[str], turns: int) -> tuple[int, int]:
    """Run bursts and naps in turn; return how many were right, and how many there were."""
    right = number = 0
    with new_client(n_workers=1, threads_per_worker=1) as client:
        for name in programs:
            with tempfile.TemporaryDirectory() as directory:
                found = observe_turns(client, name, Path(directory), turns)
            each = (
                f"{function} {what} {one:.1f}/{other:.1f}"
                for function, parts in found.parts.items()
                for what, (one, other) in parts.items()
            )
            print(f"{'right' if found.is_right else 'WRONG'} {name}: {', '.join(each)}", flush=True)
            right, number = right + found.is_right, number + 1
    return right, number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("programs", nargs="*", default=[*PROGRAMS, *BURSTS])
    options = parser.parse_args()
    print(f"Python {platform.python_version()}; table/stopwatch, percent of the time", flush=True)
    right, number = rates([x for x in options.programs if x in PROGRAMS], options.seconds)
    turns = round(options.seconds / TURN / 2)
    more = rates_in_turn([x for x in options.programs if x in BURSTS], turns)
    right, number = right + more[0], number + more[1]
    print(f"{right} of {number} are right")
    sys.exit(right < number - number // 20)


if __name__ == "__main__":
    main()
