"""Predictions against reality: record on N workers, predict 2N and N/2, and run both for real.

Tasks sleep, so that the machine's cores do not limit the larger cluster. Each pipeline runs some
times on each cluster; a prediction's error is shown beside the spread of these repeats, as no
prediction can be better. One function of a pipeline is made twice as fast and twice as slow, too.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster
from measure import Result

import dasfprof
from dasfprof import TraceAnalyser

#: Repeats that differ by less can tell whether a prediction is right.
STEADY = 0.05
COLUMNS = ["pipeline", "change", "recorded (s)", "real (s)", "spread", "predicted (s)", "error"]

Pipeline = Callable[[Client, float], None]


def nap(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


def load(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def clean(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


def merge(seconds: float, *inputs: Any) -> float:
    time.sleep(seconds)
    return seconds


def nothing(number: int) -> int:
    return number


def block(number: int, size: int) -> np.ndarray:
    time.sleep(0.02)
    return np.full(size, number, dtype=np.uint8)


def part(data: np.ndarray, number: int, of: int) -> np.ndarray:
    return data[number * len(data) // of : (number + 1) * len(data) // of]


def together(*parts: np.ndarray) -> int:
    time.sleep(0.02)
    return sum(len(part) for part in parts)


def naps(seed: int, count: int, low: float, high: float) -> list[float]:
    """Give seconds, the same ones for the same seed."""
    return np.random.default_rng(seed).uniform(low, high, count).tolist()


def compute(client: Client, *results: Any) -> None:
    client.gather(client.compute(list(results), optimize_graph=False))


def independent(client: Client, factor: float) -> None:
    seconds = [factor * each for each in naps(1, 120, 0.02, 0.12)]
    client.gather(client.map(nap, seconds, pure=False))


def tree(client: Client, factor: float) -> None:
    level = [dask.delayed(load)(each * factor) for each in naps(2, 64, 0.03, 0.09)]
    while len(level) > 1:
        level = [dask.delayed(merge)(0.04, *level[at : at + 2]) for at in range(0, len(level), 2)]
    compute(client, *level)


def mixed(client: Client, factor: float) -> None:
    loaded = [dask.delayed(load)(each) for each in naps(3, 48, 0.02, 0.06)]
    cleaned = [
        dask.delayed(clean)(factor * each, one)
        for one, each in zip(loaded, naps(4, 48, 0.03, 0.1), strict=True)
    ]
    pairs = [dask.delayed(merge)(0.05, *cleaned[at : at + 3]) for at in range(0, 48, 3)]
    compute(client, dask.delayed(merge)(0.1, *pairs))


def chains(client: Client, factor: float) -> None:
    ends = []
    for seed in range(6):
        end = dask.delayed(load)(0.03)
        for each in naps(seed, 10, 0.02, 0.08):
            end = dask.delayed(clean)(factor * each, end)
        ends.append(end)
    compute(client, *ends)


def stencil(client: Client, factor: float) -> None:
    row = [dask.delayed(load)(each) for each in naps(5, 12, 0.03, 0.06)]
    for step in range(8):
        seconds = naps(step, 12, 0.02, 0.06)
        row = [
            dask.delayed(clean)(factor * each, *row[max(at - 1, 0) : at + 2])
            for at, each in enumerate(seconds)
        ]
    compute(client, *row)


def gaps(client: Client, factor: float) -> None:
    for seed in range(3):
        seconds = [factor * each for each in naps(seed, 24, 0.02, 0.08)]
        client.gather(client.map(nap, seconds, pure=False))
        time.sleep(0.4)


def shuffle(client: Client, factor: float) -> None:
    blocks = [dask.delayed(block)(number, 4_000_000) for number in range(16)]
    compute(
        client,
        *[
            dask.delayed(together)(*[dask.delayed(part)(data, to, 16) for data in blocks])
            for to in range(16)
        ],
    )


def tiny(client: Client, factor: float) -> None:
    client.gather(client.map(nothing, range(1500), pure=False))


PIPELINES: dict[str, Pipeline] = {
    "independent": independent,
    "tree": tree,
    "mixed": mixed,
    "chains": chains,
    "stencil": stencil,
    "gaps": gaps,
    "shuffle": shuffle,
    "tiny": tiny,
}
#: Their times rest on the machine, not on the tasks: they are shown as ranges.
RANGES = ("shuffle", "tiny")
#: The function that is made faster and slower, and the pipelines where.
CHANGED = {"mixed": "clean", "tree": "load", "stencil": "clean"}


def record(client: Client, pipeline: Pipeline, factor: float, directory: Path) -> TraceAnalyser:
    """Run a pipeline once; nothing of an earlier one is left on the cluster."""
    time.sleep(0.2)
    with dasfprof.profile(client, directory=directory):
        pipeline(client, factor)
    return TraceAnalyser(directory, progress=False)


def wall_of(analyser: TraceAnalyser) -> float:
    return float(analyser.critical_path()["Duration (s)"].sum())


def run_for_real(
    workers: int, names: list[str], repeats: int, factor: float = 1.0
) -> dict[str, list[TraceAnalyser]]:
    """Run pipelines on a cluster of so many workers of two threads each, in turns."""
    runs: dict[str, list[TraceAnalyser]] = {name: [] for name in names}
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(n_workers=workers, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name in names:  # the first run of each function on a worker takes longer
            PIPELINES[name](client, 0.1)
        for turn in range(repeats):
            for name in names:
                place = Path(directory) / f"{name}-{turn}"
                runs[name].append(record(client, PIPELINES[name], factor, place))
    return runs


def compare(
    recorded: list[TraceAnalyser], real: list[TraceAnalyser], **change: Any
) -> dict[str, Any]:
    """Give predictions from each recording beside the wall times of real runs."""
    walls = [wall_of(run) for run in real]
    tables = [run.what_if(**change) for run in recorded]
    predicted = [float(table["Predicted (s)"][0]) for table in tables]
    middle = statistics.median(walls)
    return {
        "recorded": [float(table["Recorded (s)"][0]) for table in tables],
        "calibration": [float(table["Calibration Error (%)"][0]) for table in tables],
        "real": walls,
        "spread": (max(walls) - min(walls)) / middle,
        "predicted": predicted,
        "error": statistics.median(predicted) / middle - 1,
        "verdict": str(tables[0]["Verdict"][0]),
    }


def show(name: str, change: str, found: dict[str, Any]) -> list[str]:
    def shown(values: list[float]) -> str:
        if name in RANGES:
            return f"{min(values):.2f} to {max(values):.2f}"
        return f"{statistics.median(values):.2f}"

    row = [shown(found["recorded"]), shown(found["real"]), f"{found['spread']:.1%}"]
    return [name, change, *row, shown(found["predicted"]), f"{found['error']:+.1%}"]


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="N, an even number")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pipelines", nargs="+", default=list(PIPELINES))
    options = parser.parse_args(arguments)
    count, names, repeats = options.workers, options.pipelines, options.repeats
    result = Result(f"Predict other clusters from {count} workers", COLUMNS)
    recorded = run_for_real(count, names, repeats)
    for workers in (count // 2, count * 2):
        real = run_for_real(workers, names, repeats)
        for name in names:
            found = compare(recorded[name], real[name], workers=workers)
            result.rows.append(show(name, f"{workers} workers", found))
            result.figures[f"{name} {workers}"] = found
    changed = {name: function for name, function in CHANGED.items() if name in names}
    for times in (2.0, 0.5):
        real = run_for_real(count, list(changed), repeats, 1 / times) if changed else {}
        for name, function in changed.items():
            found = compare(recorded[name], real[name], speedup={function: times})
            result.rows.append(show(name, f"{function} x{times:g}", found))
            result.figures[f"{name} x{times:g}"] = found
    steady = [
        abs(found["error"])
        for label, found in result.figures.items()
        if found["spread"] < STEADY and label.split()[0] not in RANGES
    ]
    if steady:
        low, high = np.quantile(steady, [0.5, 0.9])
        note = f"{len(steady)} with a spread under {STEADY:.0%}"
        result.rows.append([note, "", "", "", "", "", f"median {low:.1%}, 90th {high:.1%}"])
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
