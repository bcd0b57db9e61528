"""`Part`: a window of the time of a run, and what reaches into it."""

from __future__ import annotations

from dataclasses import dataclass

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.trace import Trace


@dataclass(frozen=True)
class Part:
    """A window of the time of a run, and what reaches into it."""

    #: Also what began before the window, and what came before its end and began later.
    around: Trace
    #: When the window begins, and before when it ends: seconds from the run's begin, by the
    #: scheduler's clock.
    begin: float = float("-inf")
    end: float = float("inf")


@once_per_trace
def part_of(trace: Trace) -> Part:
    """Return which part of a run a trace is; a whole run is one part."""
    return Part(trace)
