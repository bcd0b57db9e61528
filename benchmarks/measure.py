"""Interleaved measurements, statistics, and tables of results, which all benchmarks share.

`interleave` runs each variant once per round, so that noise affects all variants equally.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """Result of a benchmark: a table of text for readers, and figures for programs."""

    name: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def show(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return f"\n### {self.name}\n\n" + "\n".join("| " + " | ".join(x) + " |" for x in lines)

    def save(self, directory: Path) -> None:
        """Write the figures as JSON, with the versions of the measured packages."""
        directory.mkdir(parents=True, exist_ok=True)
        packages = ("dasfprof", "dask", "distributed", "numpy", "pandas")
        about = {
            "benchmark": self.name,
            "python": platform.python_version(),
            "versions": {package: version(package) for package in packages},
            **self.figures,
        }
        path = directory / f"{self.name.lower().replace(' ', '_')}.json"
        path.write_text(json.dumps(about, indent=1) + "\n")


def interleave(
    variants: dict[str, Callable[[], Any]], rounds: int, warm_up: int = 1
) -> dict[str, list[Any]]:
    """Return the results of each variant, which runs once per round.

    Each round has a random order, so that after-effects of a variant reach all others.
    """
    measured: dict[str, list[Any]] = {name: [] for name in variants}
    order = random.Random(1)
    for number in range(-warm_up, rounds):
        for name in order.sample(list(variants), len(variants)):
            outcome = variants[name]()
            if number >= 0:
                measured[name].append(outcome)
    return measured


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the lower quartile and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def ratios(measured: dict[str, list[float]], base: str) -> dict[str, list[float]]:
    """Return each value divided by the value of the variant `base` in the same round."""
    return {
        name: [value / divisor for value, divisor in zip(values, measured[base], strict=True)]
        for name, values in measured.items()
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile with the nearest rank; `share` is a fraction."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
