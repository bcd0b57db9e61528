"""What only the whole run tells: `Extent`, which its parts find together, and each then knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.model.clock_offsets import message_bounds
from dasfprof.analysis.model.interrupts import interrupted_ends
from dasfprof.analysis.model.once_per_trace import tell
from dasfprof.analysis.model.open_runs import with_open_runs
from dasfprof.analysis.model.run_end import Endings, RunEnd, find_run_end, run_end_of
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: A worker's life, as headers and the scheduler tell it.
Life = tuple[Any, Any, Any]
#: The least and the largest offset of each clock that messages allow.
Bounds = dict[Life, tuple[float, float]]


@dataclass(frozen=True)
class Extent:
    """What only the whole run tells: when each worker's facts begin and end, and of its clock."""

    begin: float
    end: float
    lives: dict[Life, tuple[float, float]]
    bounds: Bounds
    #: See `interrupted_ends`.
    interrupted: Array
    #: Whether a task run is under way, or was given up by a client.
    is_open: bool
    #: How the run ended; None: not looked at, for which all parts must know the rest of this.
    ending: Ending | None = None

    @classmethod
    def of(cls, trace: Trace) -> Extent:
        """Find that of a trace."""
        lives, workers, endings = _lives(trace), trace.workers, Endings.of(trace)
        seen = zip(workers["first_seen"].tolist(), workers["last_seen"].tolist(), strict=True)
        return cls(
            trace.begin,
            trace.end,
            dict(zip(lives, seen, strict=True)),
            _bounds_of(trace),
            interrupted_ends(trace),
            endings.open or bool(np.isfinite(endings.given_up)),
        )

    @classmethod
    def of_all(cls, extents: Sequence[Extent]) -> Extent:
        """Put those of all parts together."""
        lives: dict[Life, tuple[float, float]] = {}
        for extent in extents:
            for life, (first, last) in extent.lives.items():
                known = lives.get(life, (np.nan, np.nan))
                lives[life] = float(np.fmin(known[0], first)), float(np.fmax(known[1], last))
        return cls(
            float(np.fmin.reduce([extent.begin for extent in extents])),
            float(np.fmax.reduce([extent.end for extent in extents])),
            lives,
            _narrowest([extent.bounds for extent in extents]),
            np.concatenate([extent.interrupted for extent in extents]),
            any(extent.is_open for extent in extents),
        )

    def may_be_unfinished(self, frame: Trace) -> bool:
        """Return whether only all parts tell that nothing was under way as the run ended."""
        nothing = dataclasses.replace(Endings.of(frame), last=np.nan)
        return self.is_open or run_end_of(frame, nothing) is not None

    def tell(self, trace: Trace) -> Trace:
        """Return the trace of a part that knows of the whole run."""
        lives = _lives(trace)
        unknown = np.nan, np.nan
        seen = np.array([self.lives.get(life, unknown) for life in lives]).reshape(-1, 2)
        workers = trace.workers.assign(first_seen=seen[:, 0], last_seen=seen[:, 1])
        told = dataclasses.replace(trace, begin=self.begin, end=self.end, workers=workers)
        tell(told, message_bounds, _as_arrays(self.bounds, lives))
        tell(told, interrupted_ends, self.interrupted)
        if self.ending is not None:
            tell(told, find_run_end, self.ending.run_end)
            if self.ending.bounds is not None:
                opened = with_open_runs(told)
                opened = dataclasses.replace(told) if opened is told else opened
                tell(opened, find_run_end, self.ending.run_end)
                tell(opened, message_bounds, _as_arrays(self.ending.bounds, lives))
                tell(told, with_open_runs, opened)
        return told


@dataclass(frozen=True)
class Ending:
    """How a run ended, and what runs that had not ended tell of clocks."""

    run_end: RunEnd | None
    #: With those of runs that had not ended; None: there are none.
    bounds: Bounds | None

    @classmethod
    def of_all(cls, frame: Trace, parts: Sequence[PartEnding]) -> Ending:
        """Put together what all parts tell, and the run without its task runs."""
        return cls(
            run_end_of(frame, Endings.of_all([part.endings for part in parts])),
            _narrowest([part.bounds for part in parts])
            if any(part.has_open_runs for part in parts)
            else None,
        )


@dataclass(frozen=True)
class PartEnding:
    """What a part tells of the end of its run."""

    endings: Endings
    bounds: Bounds
    has_open_runs: bool

    @classmethod
    def of(cls, trace: Trace) -> PartEnding:
        """Find that of a part that knows the extent of the run."""
        has_open_runs = len(trace.under_way) > 0
        return cls(Endings.of(trace), _bounds_of(with_open_runs(trace)), has_open_runs)


def _bounds_of(trace: Trace) -> Bounds:
    lower, upper = message_bounds(trace)
    bounds = zip(lower.tolist(), upper.tolist(), strict=True)
    return dict(zip(_lives(trace), bounds, strict=True))


def _narrowest(parts: Sequence[Bounds]) -> Bounds:
    found: Bounds = {}
    for bounds in parts:
        for life, (lower, upper) in bounds.items():
            least, most = found.get(life, (-np.inf, np.inf))
            found[life] = max(least, lower), min(most, upper)
    return found


def _as_arrays(bounds: Bounds, lives: list[Life]) -> tuple[Array, Array]:
    found = np.array([bounds.get(life, (-np.inf, np.inf)) for life in lives]).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _lives(trace: Trace) -> list[Life]:
    columns = (trace.workers[name] for name in ("host", "worker", "address"))
    return list(zip(*columns, strict=True))
