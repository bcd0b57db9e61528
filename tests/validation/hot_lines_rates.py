"""How accurate `hot_lines` is: ``hot_lines_rates.py --seconds 60``, on a quiet machine.

Runs each program of `hot_programs` on a real worker, and compares the table with the program's
stopwatches: which line comes first, the percentages of lines, and how much of the function's time
was computing and CPU wait. A separate run with several threads also compares how much of each
line's time was computing, within the table's margin of error. Counts the programs for which
everything is right.
"""

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
from hot_programs import BURSTS, PROGRAMS, TOGETHER, TURN, WAITING, TaskTimes, marks

import dasfprof

#: Limits (percentage points) for the error of a line's percentage, with one thread and with
#: several. With several, a sampler that waits for the GIL often finds the line that releases it.
ONE_THREAD, SEVERAL = 15.0, 15.0
#: Limit (percentage points) for the error of percentages of tasks that run in turn.
IN_TURN = 5.0
#: Limit (percentage points) for the errors of computing and of CPU wait.
TOTALS = 1.0
#: Parallel tasks of programs that run in several threads.
THREADS = 3
#: Minimum fraction of the time of a line whose computing is compared.
MINIMUM_SHARE = 0.05
#: Name for lines without a mark.
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Compared:
    """Percentages of a program's time in the table and by the stopwatches."""

    #: Percentages in the table and by the stopwatch, by mark.
    lines: dict[str, tuple[float, float]]
    #: Mark of the table's first line, and mark with the longest time by the stopwatch.
    first: tuple[str, str]
    #: Percentages of computing and, if the kernel counts it, of CPU wait.
    totals: dict[str, tuple[float, float]]
    #: Percentages of a mark's time that are computing, in the table and by the stopwatch, and the
    #: table's margin of error, by mark. Empty if CPU time was not counted, since counting needs
    #: system calls, at which another program may get the core.
    computing: dict[str, tuple[float, float, float]]
    threads: int
    #: Number of stack samples of the function.
    samples: int
    #: Error (percentage points) of a percentage of 50 that chance explains in 95 of 100 cases.
    chance: float
    #: Percentage of CPU wait of the worker's threads.
    starved: float

    @property
    def off(self) -> float:
        """Return the largest error of a line, in percentage points."""
        return max(abs(reported - actual) for reported, actual in self.lines.values())

    @property
    def totals_off(self) -> float:
        """Return the larger error of computing and CPU wait, in percentage points."""
        return max(abs(reported - actual) for reported, actual in self.totals.values())

    @property
    def computing_off(self) -> float:
        """Return the largest error of a line's computing beyond the margin of error, in points."""
        off = (
            abs(reported - actual) - margin for reported, actual, margin in self.computing.values()
        )
        return max(off, default=0.0)

    @property
    def first_is_right(self) -> bool:
        """Return whether the table's first line took the longest, or about as long as that line."""
        named, expected = self.first
        allowed = SEVERAL if self.threads > 1 else ONE_THREAD
        return named in self.lines and (self.lines[expected][1] - self.lines[named][1] <= allowed)

    @property
    def is_right(self) -> bool:
        allowed = SEVERAL if self.threads > 1 else ONE_THREAD
        if self.computing:
            return self.computing_off <= allowed
        return self.first_is_right and self.off <= allowed and self.totals_off <= TOTALS


@dataclass(frozen=True)
class Turns:
    """Percentages of the time of bursts and naps in the table and by the stopwatches."""

    #: Percentages in the table and by the stopwatch, by function and activity.
    parts: dict[str, dict[str, tuple[float, float]]]

    @property
    def off(self) -> float:
        """Return the largest error, in percentage points."""
        pairs = (pair for parts in self.parts.values() for pair in parts.values())
        return max(abs(reported - actual) for reported, actual in pairs)

    @property
    def is_right(self) -> bool:
        """Return whether all percentages are right. The sampler itself also holds the GIL."""
        return self.off <= IN_TURN


def observe(
    client: Client, name: str, directory: Path, threads: int, seconds: float, counts: bool = False
) -> Compared:
    """Run a program in some threads of a worker, and compare its times with the table."""
    client.submit(hot_programs.planted, name, 0.2, pure=False).result()  # imports what it needs
    with dasfprof.profile(client, directory=directory) as run:
        futures = [
            client.submit(hot_programs.planted, name, seconds, counts, pure=False)
            for _ in range(threads)
        ]
        times = client.gather(futures)
    return compare(run.analyser(progress=False).hot_lines("planted"), times)


def observe_turns(client: Client, name: str, directory: Path, turns: int) -> Turns:
    """Run bursts and naps in turn on a worker with one thread, and compare their times."""
    client.submit(hot_programs.burst, name, pure=False).result()  # imports what it needs
    with dasfprof.profile(client, directory=directory) as run:
        last, submitted = None, {"burst": [], "nap": []}
        for _ in range(turns):
            last = client.submit(hot_programs.burst, name, last, pure=False)
            submitted["burst"].append(last)
            last = client.submit(hot_programs.nap, last, pure=False)
            submitted["nap"].append(last)
        times = {function: client.gather(futures) for function, futures in submitted.items()}
    analyser = run.analyser(progress=False)
    parts = {}
    for function, each in times.items():
        table = analyser.hot_lines(function)
        wall = sum(task.wall for task in each)
        queued = [task.run_queue for task in each if task.run_queue is not None]
        lock = _percent(table, "Interpreter's Lock (s)")
        other = 100 * (wall - sum(task.computing for task in each) - sum(queued)) / wall
        # If the function does not wait for anything itself, its other time is waiting for the GIL.
        known = 0.0 if function == "nap" or name in WAITING else min(max(other, 0.0), lock)
        computing = 100 * sum(task.computing for task in each) / wall
        core = 100 * sum(queued) / wall if queued else float("nan")
        parts[function] = {
            "computing": (_percent(table, "Computing (s)"), computing),
            "CPU wait": (_percent(table, "Waiting for CPU (s)"), core),
            "waiting for the GIL": (lock, known),
        }
    return Turns(parts)


def compare(table: pd.DataFrame, tasks: list[TaskTimes]) -> Compared:
    """Compare a table of `hot_lines` with the times that the tasks measured."""
    threads, wall = len(tasks), sum(task.wall for task in tasks)
    computing = sum(task.computing for task in tasks)
    expected: dict[str, float] = {}
    for task in tasks:
        for mark, value in task.seconds.items():
            expected[mark] = expected.get(mark, 0.0) + value
    mark_of = {(hot_programs.__file__, line): mark for line, mark in marks().items()}
    names = [
        mark_of.get((file, line), ELSEWHERE)
        for file, line in zip(table["File"], table["Line"], strict=True)
    ]
    marked = {mark: seconds for mark, seconds in expected.items() if mark in names}
    marked[ELSEWHERE] = wall - sum(marked.values())
    by_mark = table.groupby(pd.Series(names, index=table.index)).sum(numeric_only=True)
    seconds_of = by_mark["Time (s)"]
    lines = {
        mark: (100 * seconds_of.get(mark, 0.0) / seconds_of.sum(), 100 * seconds / wall)
        for mark, seconds in marked.items()
    }
    totals = {"computing": (_percent(table, "Computing (s)"), 100 * computing / wall)}
    queued = [task.run_queue for task in tasks if task.run_queue is not None]
    if len(queued) == threads:
        core = _percent(table, "Waiting for CPU (s)")
        totals["CPU wait"] = core, 100 * sum(queued) / wall
    longest = max(expected, key=lambda mark: expected[mark])
    samples = int(table["Samples"].sum())
    chance = 196 * (0.25 / max(samples, 1)) ** 0.5
    starved = 100 * sum(queued) / wall
    split = _computing_at(by_mark, tasks)
    return Compared(lines, (names[0], longest), totals, split, threads, samples, chance, starved)


def _computing_at(
    table: pd.DataFrame, tasks: list[TaskTimes]
) -> dict[str, tuple[float, float, float]]:
    """Compare how much of a mark's time was computing, for marks with a twentieth of all time."""
    shares = 100 * table[["Computing (s)", "Uncertain (s)"]].div(table["Time (s)"], axis=0)
    split = {}
    for mark in {mark for task in tasks for mark in task.computing_at} & {*table.index}:
        seconds = sum(task.seconds[mark] for task in tasks if mark in task.seconds)
        if seconds < MINIMUM_SHARE * sum(task.wall for task in tasks):
            continue
        computing = sum(task.computing_at.get(mark, 0.0) for task in tasks)
        reported, margin = shares.loc[mark]
        split[mark] = float(reported), 100 * computing / seconds, float(margin)
    return split


def _percent(table: pd.DataFrame, column: str) -> float:
    return float(100 * table[column].sum() / table["Time (s)"].sum())


def show(name: str, compared: Compared) -> str:
    lines = ", ".join(f"{mark} {a:.1f}/{b:.1f}" for mark, (a, b) in compared.lines.items())
    totals = ", ".join(f"{name} {a:.1f}/{b:.1f}" for name, (a, b) in compared.totals.items())
    verdict = "right" if compared.is_right else "WRONG"
    if compared.computing:
        each = (f"{m} {t:.0f}/{s:.0f} ± {u:.0f}" for m, (t, s, u) in compared.computing.items())
        return f"{verdict} {name} x{compared.threads}, computing of each line: {', '.join(each)}"
    first = (
        "" if compared.first_is_right else f"; first {compared.first[0]}, not {compared.first[1]}"
    )
    threads = f" x{compared.threads}" if compared.threads > 1 else ""
    return (
        f"{verdict} {name + threads:20} lines off {compared.off:4.1f} "
        f"(chance {compared.chance:.1f}), "
        f"totals off {compared.totals_off:4.1f}{first}: {lines}; {totals}"
    )


def rates(programs: Iterable[str], seconds: float) -> tuple[int, int]:
    """Run programs; return how many were right, and how many there were."""
    right = number = 0
    with new_client(n_workers=1, threads_per_worker=THREADS) as client:
        for name in programs:
            together = ((THREADS, False), (THREADS, True)) if name in TOGETHER else ()
            for threads, counts in ((1, False), *together):
                with tempfile.TemporaryDirectory() as directory:
                    compared = observe(client, name, Path(directory), threads, seconds, counts)
                print(show(name, compared), flush=True)
                right, number = right + compared.is_right, number + 1
    return right, number


def rates_in_turn(programs: Iterable[str], turns: int) -> tuple[int, int]:
    """Run bursts and naps in turn; return how many were right, and how many there were."""
    right = number = 0
    with new_client(n_workers=1, threads_per_worker=1) as client:
        for name in programs:
            with tempfile.TemporaryDirectory() as directory:
                compared = observe_turns(client, name, Path(directory), turns)
            each = (
                f"{function} {activity} {reported:.1f}/{actual:.1f}"
                for function, parts in compared.parts.items()
                for activity, (reported, actual) in parts.items()
            )
            print(
                f"{'right' if compared.is_right else 'WRONG'} {name}: {', '.join(each)}", flush=True
            )
            right, number = right + compared.is_right, number + 1
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
