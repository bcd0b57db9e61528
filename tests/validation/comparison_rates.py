"""How often comparisons of five with five planned runs, which vary by 2 %, are right.

``comparison_rates.py [--pairs 30] [WORDS ...]`` writes new runs for each pair, and compares them.
For each change, it prints how often the difference of the wall time is certain, and how often the
actual change is named first. ``WORDS`` select changes by a part of their names.
"""

import argparse
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traces.noisy import SECONDS, Noisy

from dasfprof.analysis import Trace
from dasfprof.handles.comparison import RunComparison, compare

#: Runs per side.
RUNS_PER_SIDE = 5
#: Unchanged pipeline, whose wall times have a standard deviation of 2 % because of the machine and
#: random durations of tasks. The client submits twice, so that a change can make its gap longer.
QUIET = Noisy(of_runs=0.018, of_tasks=0.05, held_up=0.0, gap=0.02, megabytes=1.0)


@dataclass(frozen=True)
class Change:
    """Changed pipeline, and the regular expression that the first reported change must match."""

    after: Noisy
    first_change: str = ""


#: Changes by name. The first changes make the wall time differ by 10 %.
CHANGES = {
    "nothing": Change(QUIET),
    "each task 10 % longer": Change(
        replace(QUIET, times=dict.fromkeys(SECONDS, 1.1)), "(load|clean|sum) takes .* longer"
    ),
    "load 17 % longer": Change(replace(QUIET, times={"load": 1.17}), "load takes .* longer"),
    "clean 35 % longer": Change(replace(QUIET, times={"clean": 1.35}), "clean takes .* longer"),
    "load 17 % shorter": Change(replace(QUIET, times={"load": 0.83}), "load takes .* less time"),
    "a gap of 0.22 s": Change(replace(QUIET, gap=0.22), "On the critical path: client [+]"),
    "6 times the bytes": Change(replace(QUIET, megabytes=6.0), "Bytes of all inputs|Median size"),
    "twice the tasks": Change(replace(QUIET, chunks=48, overhead=0.012), "Task runs 55 → 109"),
    "load 2x longer": Change(replace(QUIET, times={"load": 2.0}), "load takes .* longer"),
    "one worker fewer": Change(replace(QUIET, workers=1), "Workers 2 → 1"),
    "one after another": Change(replace(QUIET, serial=True), "Dependencies in the graph"),
    "20 ms of overhead": Change(
        replace(QUIET, overhead=0.022), "On the critical path: task overhead [+]"
    ),
}


def pair(directory: Path, change: Change, number: int) -> RunComparison:
    """Write and compare the sides of a pair; each run has a different seed."""
    first = number * 2 * RUNS_PER_SIDE
    before = _runs(directory / "before", QUIET, range(first, first + RUNS_PER_SIDE))
    after = _runs(
        directory / "after", change.after, range(first + RUNS_PER_SIDE, first + 2 * RUNS_PER_SIDE)
    )
    return compare(before, after)


def is_named_first(comparison: RunComparison, change: Change) -> bool:
    """Return whether the first sentence after the verdict names the change."""
    first = " ".join(comparison.sentences[1:]).split(",")[0]
    return bool(re.search(change.first_change, first)) if change.first_change else not first


def _runs(directory: Path, noisy: Noisy, seeds: Sequence[int]) -> list[Trace]:
    return [Trace.from_database(noisy.write(directory / str(seed), seed)) for seed in seeds]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("changes", nargs="*", metavar="WORDS")
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args(arguments)
    print(f"{'changed':24}{'wall time':>10}{'certain':>9}{'first':>7}  else it says, say")
    for name, change in CHANGES.items():
        if options.changes and not any(words in name for words in options.changes):
            continue
        certain, first, changes, wrong = 0, 0, 0.0, ""
        for number in range(options.pairs):
            with tempfile.TemporaryDirectory() as directory:
                comparison = pair(Path(directory), change, number)
            certain += comparison.verdict.certain
            changes += comparison.verdict.change / options.pairs
            if is_named_first(comparison, change):
                first += 1
            else:
                wrong = " ".join(comparison.sentences[1:])
        print(f"{name:24}{changes:>+10.1%}{certain:>9}{first:>7}  {wrong}", flush=True)


if __name__ == "__main__":
    main()
