"""A part of a spilled run as a `Trace`, and what a part alone cannot tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.large.spilled import PartFile, SpilledFile
from dasfprof.analysis.model.clock_offsets import message_bounds
from dasfprof.analysis.model.once_per_trace import tell
from dasfprof.analysis.model.run_end import find_run_end
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.builder import TraceBuilder
from dasfprof.analysis.trace.reader import TraceReader
from dasfprof.database import FileDatabase
from dasfprof.database.block_codec import Batch
from dasfprof.database.reader import TraceFile
from dasfprof.schema.tasks import TASK_RUN

#: Names of questions with their arguments: what can travel between processes.
Asked = Sequence[tuple[str, dict[str, Any]]]
#: A worker's life, as headers and the scheduler tell it.
Life = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Extent:
    """What only the whole run tells: when each worker's facts begin and end, and of its clock."""

    begin: float
    end: float
    lives: dict[Life, tuple[float, float]]
    #: The least and the largest offset of each clock that messages allow; empty: not looked at.
    bounds: dict[Life, tuple[float, float]]
    #: Whether work was under way as the run ended.
    unfinished: bool

    @classmethod
    def of(cls, trace: Trace) -> Extent:
        """Find that of a trace."""
        lives = _lives(trace)
        workers = trace.workers
        seen = zip(workers["first_seen"].tolist(), workers["last_seen"].tolist(), strict=True)
        lower, upper = message_bounds(trace)
        bounds = zip(lower.tolist(), upper.tolist(), strict=True)
        return cls(
            trace.begin,
            trace.end,
            dict(zip(lives, seen, strict=True)),
            dict(zip(lives, bounds, strict=True)),
            find_run_end(trace) is not None or len(trace.under_way) > 0,
        )

    @classmethod
    def of_all(cls, extents: Sequence[Extent]) -> Extent:
        """Put those of all parts together."""
        lives: dict[Life, tuple[float, float]] = {}
        bounds: dict[Life, tuple[float, float]] = {}
        for extent in extents:
            for life, (first, last) in extent.lives.items():
                known = lives.get(life, (np.nan, np.nan))
                lives[life] = float(np.fmin(known[0], first)), float(np.fmax(known[1], last))
            for life, (lower, upper) in extent.bounds.items():
                least, most = bounds.get(life, (-np.inf, np.inf))
                bounds[life] = max(least, lower), min(most, upper)
        return cls(
            float(np.fmin.reduce([extent.begin for extent in extents])),
            float(np.fmax.reduce([extent.end for extent in extents])),
            lives,
            bounds,
            any(extent.unfinished for extent in extents),
        )

    def tell(self, trace: Trace) -> Trace:
        """Return the trace of a part that knows of the whole run."""
        lives = _lives(trace)
        unknown = np.nan, np.nan
        seen = np.array([self.lives.get(life, unknown) for life in lives]).reshape(-1, 2)
        workers = trace.workers.assign(first_seen=seen[:, 0], last_seen=seen[:, 1])
        told = dataclasses.replace(trace, begin=self.begin, end=self.end, workers=workers)
        bounds = np.array([self.bounds.get(life, (-np.inf, np.inf)) for life in lives])
        lower, upper = bounds.reshape(-1, 2).T
        tell(told, message_bounds, (lower, upper))
        return told


def tell_part(  # noqa: PLR0917
    asked: Asked | None,
    extent: Extent | None,
    files: Sequence[SpilledFile],
    rows: Sequence[list[Batch]],
    part: int,
    parts: int,
) -> Any:
    """Return what a part tells of each of some questions, or its own extent if none is asked."""
    trace = read_part(files, rows, part, parts)
    if asked is None or extent is None:
        return Extent.of(trace)
    trace, told = extent.tell(trace), []
    for name, arguments in asked:
        how = questions.named(name).in_parts
        if isinstance(how, InParts):
            told.append(how.of_part(trace, **arguments))
    return told


def read_part(
    files: Sequence[SpilledFile], rows: Sequence[list[Batch]], part: int, parts: int
) -> Trace:
    """Read a part of a run.

    Parameters
    ----------
    files
        All files of the run, in their order.
    rows
        The spilled rows of each that are in the part.
    part, parts
        Which part it is, and of how many.
    """
    return Trace(**TraceBuilder(_reader(files, rows, part, parts)).make())


def read_frame(files: Sequence[SpilledFile]) -> Trace:
    """Read what is not spilled; of the rest only what began first and ended last.

    Its tables of task runs and transfers are of no use, all others are those of the run. Its notes
    are those of the files.
    """
    rows = [[batch for batch in file.edges if batch.name != TASK_RUN.name] for file in files]
    reader = _reader(files, rows, -1, 1)
    trace = Trace(**TraceBuilder(reader).make())
    # Other notes count task runs.
    return dataclasses.replace(trace, notes=tuple(reader.notes))


def _reader(
    files: Sequence[SpilledFile], rows: Sequence[list[Batch]], part: int, parts: int
) -> TraceReader:
    pairs = zip(files, rows, strict=True)
    databases = [_PartDatabase(PartFile(file, more, part, parts)) for file, more in pairs]
    return TraceReader(list(databases), progress=False)


def needs_extent(files: Sequence[SpilledFile], frame: Trace) -> bool:
    """Return whether only all parts tell the extent of the run, and not the frame alone."""
    return any(file.holds(TASK_RUN) for file in files) or any(
        batch.name == "Task Under Way" for file in files for batch in file.rest
    )


class _PartDatabase(FileDatabase):
    """A part of a file, for a `TraceReader`."""

    def __init__(self, file: TraceFile) -> None:
        self._file, self.window = file, file.window

    def trace_file(self) -> TraceFile:
        return self._file


def _lives(trace: Trace) -> list[Life]:
    workers: pd.DataFrame = trace.workers
    columns = (workers["host"], workers["worker"], workers["address"])
    return list(zip(*columns, strict=True))
