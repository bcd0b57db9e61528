"""Errors of predictions: record on N workers, predict 2N and N/2 workers, and run on both.

Tasks sleep, so that the machine's cores do not limit the larger cluster. Each pipeline runs several
times on each cluster. The table shows the error of a prediction next to the spread of these runs
and of the recordings used, because no prediction can be more accurate than that. In some pipelines,
one function is also made twice as fast and twice as slow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster
from measure import Result

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.simulation import replay_of

#: Threshold (fraction): predictions are judged only if repeated runs differ by less than this.
STEADY = 0.05
COLUMNS = ["pipeline", "change", "recorded (s)", "spread", "real (s)", "spread"]
COLUMNS += ["predicted (s)", "error"]


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
    """Return random seconds; the same seed always gives the same seconds."""
    return np.random.default_rng(seed).uniform(low, high, count).tolist()


@dataclass(frozen=True)
class Pipelines:
    """Pipelines whose tasks sleep.

    `scale` multiplies the sleep of all tasks, and `factor` also that of the function in `CHANGED`.
    """

    client: Client
    scale: float = 1.0
    factor: float = 1.0

    def compute(self, *results: Any) -> None:
        self.client.gather(self.client.compute(list(results), optimize_graph=False))

    def run(self, function: Callable[..., Any], seconds: float, *inputs: Any) -> Any:
        return dask.delayed(function)(seconds * self.scale, *inputs)

    def changed(self, function: Callable[..., Any], seconds: float, *inputs: Any) -> Any:
        return self.run(function, seconds * self.factor, *inputs)

    def independent(self) -> None:
        self.compute(*[self.run(nap, seconds) for seconds in naps(1, 120, 0.02, 0.12)])

    def tree(self) -> None:
        level = [self.changed(load, seconds) for seconds in naps(2, 64, 0.03, 0.09)]
        while len(level) > 1:
            level = [self.run(merge, 0.04, *level[at : at + 2]) for at in range(0, len(level), 2)]
        self.compute(*level)

    def mixed(self) -> None:
        loaded = [self.run(load, seconds) for seconds in naps(3, 48, 0.02, 0.06)]
        cleaned = [
            self.changed(clean, seconds, data)
            for data, seconds in zip(loaded, naps(4, 48, 0.03, 0.1), strict=True)
        ]
        groups = [self.run(merge, 0.05, *cleaned[at : at + 3]) for at in range(0, 48, 3)]
        self.compute(self.run(merge, 0.1, *groups))

    def chains(self) -> None:
        ends = []
        for seed in range(6):
            end = self.run(load, 0.03)
            for seconds in naps(seed, 10, 0.02, 0.08):
                end = self.run(clean, seconds, end)
            ends.append(end)
        self.compute(*ends)

    def stencil(self) -> None:
        row = [self.run(load, seconds) for seconds in naps(5, 12, 0.03, 0.06)]
        for step in range(8):
            row = [
                self.changed(clean, seconds, *row[max(at - 1, 0) : at + 2])
                for at, seconds in enumerate(naps(step, 12, 0.02, 0.06))
            ]
        self.compute(*row)

    def gaps(self) -> None:
        for seed in range(3):
            self.compute(*[self.run(nap, seconds) for seconds in naps(seed, 24, 0.02, 0.08)])
            time.sleep(0.3 * self.scale)

    def shuffle(self) -> None:
        blocks = [dask.delayed(block)(number, 4_000_000) for number in range(16)]
        parts = [[dask.delayed(part)(data, to, 16) for data in blocks] for to in range(16)]
        self.compute(*[dask.delayed(together)(*row) for row in parts])

    def tiny(self) -> None:
        self.compute(*[dask.delayed(nothing)(number) for number in range(1500)])


NAMES = ["independent", "tree", "mixed", "chains", "stencil", "gaps", "shuffle", "tiny"]
#: Pipelines whose times depend on the machine rather than on the tasks. They are shown as ranges.
RANGES = ("shuffle", "tiny")
#: By pipeline, the function that is made faster and slower.
CHANGED = {"mixed": "clean", "tree": "load", "stencil": "clean"}


def record(
    client: Client, name: str, directory: Path, scale: float = 1.0, factor: float = 1.0
) -> TraceAnalyser:
    """Record a run of a pipeline."""
    time.sleep(0.2)  # the scheduler releases the previous pipeline
    with dasfprof.profile(client, directory=directory):
        getattr(Pipelines(client, scale, factor), name)()
    return TraceAnalyser(directory, progress=False)


def wall_of(analyser: TraceAnalyser) -> float:
    return float(analyser.critical_path()["Duration (s)"].sum())


def run_for_real(
    workers: int, names: Sequence[str], scale: float, factors: Sequence[float] = (1.0,)
) -> dict[tuple[str, float], TraceAnalyser]:
    """Run pipelines once on a cluster of `workers` workers with two threads each."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(n_workers=workers, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name in names:  # the first run of a function on a worker takes longer
            getattr(Pipelines(client, 0.1), name)()
        return {
            (name, factor): record(
                client, name, Path(directory) / f"{name}-{factor}", scale, factor
            )
            for name in names
            for factor in factors
            if factor == 1 or name in CHANGED
        }


def spread_of(walls: list[float]) -> float:
    return (max(walls) - min(walls)) / statistics.median(walls)


def compare(
    recorded: list[TraceAnalyser], real: list[TraceAnalyser], *, ranges: bool, **change: Any
) -> dict[str, Any]:
    """Compare predictions from each recording with the wall times of real runs.

    With `ranges`, the predicted times are those of replays, even if a prediction was refused.
    """
    walls = [wall_of(run) for run in real]
    tables = [run.what_if(**change) for run in recorded]
    predicted = [float(table["Predicted (s)"][0]) for table in tables]
    refused = sum(not np.isfinite(wall) for wall in predicted)
    if ranges:
        predicted = [replayed(run, **change) for run in recorded]
    middle = statistics.median(walls)
    known = [wall for wall in predicted if np.isfinite(wall)]
    return {
        "recorded": [float(table["Recorded (s)"][0]) for table in tables],
        "calibration": [float(table["Calibration Error (%)"][0]) for table in tables],
        "real": walls,
        "recorded spread": spread_of([float(table["Recorded (s)"][0]) for table in tables]),
        "spread": spread_of(walls),
        "predicted": predicted,
        "refused": refused,
        "error": statistics.median(known) / middle - 1 if known else None,
        "verdicts": [str(table["Verdict"][0]) for table in tables],
    }


def replayed(run: TraceAnalyser, workers: int) -> float:
    replay = replay_of(run.run)
    wall = replay.outcome(cluster=replay.cluster.with_workers(workers)).wall
    return replay.inputs.wall * wall / replay.base


def show(name: str, change: str, comparison: dict[str, Any]) -> list[str]:
    def shown(values: list[float]) -> str:
        known = [value for value in values if np.isfinite(value)]
        if not known:
            return ""
        if name in RANGES:
            return f"{min(known):.2f} to {max(known):.2f}"
        return f"{statistics.median(known):.2f}"

    row = [shown(comparison["recorded"]), f"{comparison['recorded spread']:.1%}"]
    row += [shown(comparison["real"]), f"{comparison['spread']:.1%}"]
    error = "" if comparison["error"] is None else f"{comparison['error']:+.1%}"
    refused = f" ({comparison['refused']} refused)" if comparison["refused"] else ""
    return [name, change, *row, shown(comparison["predicted"]) + refused, error]


def summary(figures: dict[str, Any]) -> list[str]:
    """Return a row with the errors of the predictions whose repeated runs have a small spread."""
    steady = [
        abs(comparison["error"])
        for label, comparison in figures.items()
        if comparison["error"] is not None
        and max(comparison["recorded spread"], comparison["spread"]) < STEADY
        and label.split()[0] not in RANGES
    ]
    note = f"{len(steady)} with a spread under {STEADY:.0%}"
    if not steady:
        return [note, *[""] * 7]
    low, high = np.quantile(steady, [0.5, 0.9])
    return [note, *[""] * 6, f"median {low:.1%}, 90th {high:.1%}"]


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="N, an even number")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the sleep of all tasks"
    )
    parser.add_argument("--pipelines", nargs="+", default=NAMES, choices=NAMES)
    options = parser.parse_args(arguments)
    count, names = options.workers, options.pipelines
    factors = {count: (1.0, 0.5, 2.0), count // 2: (1.0,), count * 2: (1.0,)}
    runs: dict[tuple[int, str, float], list[TraceAnalyser]] = {}
    for _ in range(options.repeats):
        # Each round uses all clusters, so that noise affects them equally.
        for workers, wanted in factors.items():
            analysers = run_for_real(workers, names, options.scale, wanted)
            for (name, factor), analyser in analysers.items():
                runs.setdefault((workers, name, factor), []).append(analyser)
    result = Result(f"Predict other clusters from {count} workers", COLUMNS)
    for (workers, name, factor), real in runs.items():
        if workers == count and factor == 1:
            continue
        if workers != count:
            change, parameters = f"{workers} workers", {"workers": workers}
        else:
            change = f"{CHANGED[name]} x{1 / factor:g}"
            parameters = {"speedup": {CHANGED[name]: 1 / factor}}
        comparison = compare(runs[count, name, 1.0], real, ranges=name in RANGES, **parameters)
        result.rows.append(show(name, change, comparison))
        result.figures[f"{name} {change}"] = comparison
    result.rows.append(summary(result.figures))
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
