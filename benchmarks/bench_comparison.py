"""How often a comparison of recorded runs is right.

A comparison is right if it names a planted change, or reports no difference where nothing changed.
The benchmark also counts how often the regression gate closes by chance.

Several variants of a small pipeline are recorded in turn on worker processes. Pairs of sides, with
five runs per side, are drawn from these recordings.
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


@dataclass(frozen=True)
class Variant:
    """Variant of the pipeline: seconds per task of each function, and other changes."""

    load: float = 0.05
    clean: float = 0.1
    workers: int = 2
    chunks: int = CHUNKS
    one_after_another: bool = False
    #: Regular expression that the first reported change must match, or "" if nothing changed.
    first_change: str = ""


VARIANTS = {
    "nothing": Variant(),
    "nothing, again": Variant(),
    "clean 10 % slower": Variant(clean=0.11, first_change="clean takes"),
    "clean 25 % slower": Variant(clean=0.125, first_change="clean takes"),
    "clean 25 % faster": Variant(clean=0.075, first_change="clean takes"),
    "clean 2x slower": Variant(clean=0.2, first_change="clean takes"),
    "load 2x slower": Variant(load=0.1, first_change="load takes"),
    "one worker fewer": Variant(workers=1, first_change="Workers 2 → 1"),
    "chunks halved": Variant(chunks=2 * CHUNKS, first_change="Task runs"),
    "clean one after another": Variant(one_after_another=True, first_change="clean|Dependencies"),
}


def load(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def clean(number: int, before: int | None, seconds: float) -> int:
    time.sleep(seconds)
    return number


def total(parts: list[int]) -> int:
    return sum(parts)


def run_pipeline(client: Client, variant: Variant) -> None:
    share = CHUNKS / variant.chunks
    loads, cleans = dask.delayed(load), dask.delayed(clean)
    parts: list[Any] = []
    for number in range(variant.chunks):
        before = parts[-1] if variant.one_after_another and parts else None
        loaded = loads(number, variant.load * share, dask_key_name=f"load-{number}")
        parts.append(cleans(loaded, before, variant.clean * share, dask_key_name=f"clean-{number}"))
    computed = dask.delayed(total)(parts, dask_key_name="total-0")
    assert client.compute(computed).result() == sum(range(variant.chunks))


def record(directory: Path, rounds: int) -> dict[str, list[Trace]]:
    """Record each variant `rounds` times; variants with the same number of workers take turns."""
    traces: dict[str, list[Trace]] = {name: [] for name in VARIANTS}
    for workers in sorted({variant.workers for variant in VARIANTS.values()}):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=2, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(workers)
            run_pipeline(client, Variant())  # warms up the workers
            for number in range(rounds):
                for name, variant in VARIANTS.items():
                    if variant.workers == workers:
                        target = directory / f"{name}-{number}"
                        with dasfprof.profile(client, name="pipeline", directory=target):
                            run_pipeline(client, variant)
                        traces[name].append(Trace.from_database(dasfprof.open_run(target)))
    return traces


def compared(before: list[Trace], after: list[Trace], seed: int, count: int) -> RunComparison:
    """Compare two sides of `count` random runs; `before` and `after` may be the same list."""
    draw = random.Random(seed)
    if before is after:
        runs = draw.sample(before, 2 * count)
        return compare(runs[:count], runs[count:])
    return compare(draw.sample(before, count), draw.sample(after, count))


def is_right(name: str, comparison: RunComparison) -> bool:
    wanted = VARIANTS[name].first_change
    if not wanted:
        return comparison.verdict.kind == "no difference"
    return re.search(wanted, " ".join(comparison.sentences[1:]).split(",")[0]) is not None


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="recordings of each variant")
    parser.add_argument("--runs", type=int, default=5, help="runs per side")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of sides of each variant")
    parser.add_argument("--gates", type=int, default=500, help="pairs of sides for the gate")
    options = parser.parse_args(arguments)
    result = Result(
        "Comparisons of recorded runs", ["change", "right", "example of a wrong report"]
    )
    with tempfile.TemporaryDirectory() as directory:
        recorded = record(Path(directory), options.rounds)
        same = recorded["nothing"] + recorded.pop("nothing, again")
        for name, runs in recorded.items():
            other = same if name == "nothing" else runs
            comparisons = [
                compared(same, other, seed, options.runs) for seed in range(options.pairs)
            ]
            wrong = [" ".join(x.sentences) for x in comparisons if not is_right(name, x)]
            right = options.pairs - len(wrong)
            result.figures[name] = right
            result.rows.append([name, f"{right} of {options.pairs}", "".join(wrong[:1])])
        closed = 0
        for seed in range(options.pairs, options.pairs + options.gates):
            closed += check_slower(compared(same, same, seed, options.runs), 0.0).is_closed
        result.figures["false alarms"] = closed / options.gates
        cell = f"closed {closed} of {options.gates} times"
        result.rows.append(["nothing: gate at 0 %", cell, ""])
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
