"""Memory thresholds at which a recorded worker spilled, paused, and was killed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class MemoryThresholds:
    """Fractions of a worker's memory limit at which Dask acts, or infinity if it never acts."""

    #: Fraction of the limit that results may use before the worker spills.
    target: float = 0.6
    #: Fractions of the limit that the process may use before the worker spills, before it stops
    #: starting tasks, and before its nanny kills it.
    spill: float = 0.7
    pause: float = 0.8
    terminate: float = 0.95

    @property
    def spills(self) -> float:
        """The fraction above which the worker may spill."""
        return min(self.target, self.spill)

    @property
    def kills(self) -> float:
        """The fraction at which the process is killed."""
        # If no nanny kills the process earlier, it is killed at its limit.
        return min(self.terminate, 1.0)

    @property
    def comfortable(self) -> float:
        """The fraction up to which the worker does not spill or pause, and is not killed."""
        return min(self.spills, self.pause, self.kills)

    def near(self, fraction: float) -> float:
        """Return `fraction`, scaled down if the worker is killed earlier than by default.

        It is a fraction of the memory limit.
        """
        return fraction * min(self.kills / MemoryThresholds.terminate, 1.0)


def memory_thresholds(run: Any, life: int | None = None) -> MemoryThresholds:
    """Return the thresholds of a worker instance, or the lowest of all workers if `life` is None.

    Thresholds that were not recorded are Dask's defaults.
    """
    rows = run.workers if life is None else run.workers.iloc[[life]]
    fractions: dict[str, list[float]] = {}
    for sizes in rows["memory_sizes"]:
        limit = sizes.get("memory_limit") if isinstance(sizes, dict) else None
        for field in fields(MemoryThresholds) if limit else ():
            size = sizes.get(f"memory_{field.name}")
            if size is not None:  # Rounded, because a size is an integer number of bytes.
                fractions.setdefault(field.name, []).append(round(size / limit, 3) or inf)
    setting = run.surroundings.settings.get("distributed.worker.memory.terminate")
    # Settings were recorded in the scheduler's process.
    if "terminate" not in fractions and setting is not None:
        fraction = 0.0 if setting == "False" else pd.to_numeric(setting, errors="coerce")
        fractions["terminate"] = [float(fraction) or inf] if fraction >= 0 else []
    return MemoryThresholds(**{name: min(known) for name, known in fractions.items() if known})
