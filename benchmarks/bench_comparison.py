"""Whether a comparison of recorded runs is right: planted changes named, nothing seen where nothing
changed, and how often the gate for CI is shut by chance.

Each kind of a small pipeline is recorded several times on worker processes, all kinds in turn.
Pairs of sides of five runs each are drawn from these recordings.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from measure import Result

import dasfprof
from dasfprof.analysis import Trace
from dasfprof.analysis.comparison.comparison import check_slower
from dasfprof.handles.comparison import RunComparison, compare

CHUNKS = 16
#: Runs a side, and pairs of sides.
A_SIDE, PAIRS = 5, 20


@dataclass(frozen=True)
class Kind:
    """How a pipeline is run: seconds of its functions' tasks, and what else is changed."""

    load: float = 0.05
    clean: float = 0.1
    workers: int = 2
    chunks: int = CHUNKS
    one_after_another: bool = False
    #: What must be said first of the change, a regular expression; empty: of nothing changed.
    said_first: str = ""


KINDS = {
    "nothing": Kind(),
    "nothing, again": Kind(),
    "clean 10 % slower": Kind(clean=0.11, said_first="clean takes"),
    "clean 25 % slower": Kind(clean=0.125, said_first="clean takes"),
    "clean 25 % faster": Kind(clean=0.075, said_first="clean takes"),
    "clean 2x slower": Kind(clean=0.2, said_first="clean takes"),
    "load 2x slower": Kind(load=0.1, said_first="load takes"),
    "a worker fewer": Kind(workers=1, said_first="Workers 2 → 1"),
    "chunks halved": Kind(chunks=2 * CHUNKS, said_first="Task runs"),
    "clean one after another": Kind(one_after_another=True, said_first="clean|Dependencies"),
}


def load(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def clean(number: int, before: int | None, seconds: float) -> int:
    time.sleep(seconds)
    return number


def total(parts: list[int]) -> int:
    return sum(parts)


def run_pipeline(client: Client, kind: Kind) -> None:
    share = CHUNKS / kind.chunks
    loads, cleans = dask.delayed(load), dask.delayed(clean)
    parts: list[Any] = []
    for number in range(kind.chunks):
        before = parts[-1] if kind.one_after_another and parts else None
        loaded = loads(number, kind.load * share, dask_key_name=f"load-{number}")
        parts.append(cleans(loaded, before, kind.clean * share, dask_key_name=f"clean-{number}"))
    computed = dask.delayed(total)(parts, dask_key_name="total-0")
    assert client.compute(computed).result() == sum(range(kind.chunks))


def record(directory: Path, rounds: int) -> dict[str, list[Trace]]:
    """Record each kind so often, those of as many workers in turn."""
    found: dict[str, list[Trace]] = {name: [] for name in KINDS}
    for workers in sorted({kind.workers for kind in KINDS.values()}):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=2, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(workers)
            run_pipeline(client, Kind())  # meets what workers do once
            for number in range(rounds):
                for name, kind in KINDS.items():
                    if kind.workers == workers:
                        place = directory / f"{name}-{number}"
                        with dasfprof.profile(client, name="pipeline", directory=place):
                            run_pipeline(client, kind)
                        found[name].append(Trace.from_database(dasfprof.open_run(place)))
    return found


def compared(before: list[Trace], after: list[Trace], seed: int) -> RunComparison:
    """Compare two sides that are drawn, from one list if both are the same."""
    draw = random.Random(seed)
    if before is after:
        runs = draw.sample(before, 2 * A_SIDE)
        return compare(runs[:A_SIDE], runs[A_SIDE:])
    return compare(draw.sample(before, A_SIDE), draw.sample(after, A_SIDE))


def is_right(name: str, comparison: RunComparison) -> bool:
    wanted = KINDS[name].said_first
    if not wanted:
        return comparison.verdict.kind == "no difference"
    return re.search(wanted, " ".join(comparison.sentences[1:]).split(",")[0]) is not None


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="recordings of each kind")
    parser.add_argument("--gates", type=int, default=500, help="pairs at which the gate is tried")
    options = parser.parse_args(arguments)
    result = Result("Comparisons of recorded runs", ["changed", "right", "else it says, say"])
    with tempfile.TemporaryDirectory() as directory:
        recorded = record(Path(directory), options.rounds)
        same = recorded["nothing"] + recorded.pop("nothing, again")
        for name, runs in recorded.items():
            other = same if name == "nothing" else runs
            found = [compared(same, other, seed) for seed in range(PAIRS)]
            wrong = [" ".join(one.sentences) for one in found if not is_right(name, one)]
            result.figures[name] = PAIRS - len(wrong)
            result.rows.append([name, f"{PAIRS - len(wrong)} of {PAIRS}", "".join(wrong[:1])])
        shut = 0
        for seed in range(PAIRS, PAIRS + options.gates):
            shut += check_slower(compared(same, same, seed), 0.0).is_closed
        result.figures["false alarms"] = shut / options.gates
        told = f"shut {shut} of {options.gates} times"
        result.rows.append(["nothing: the gate at 0 %", told, ""])
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
