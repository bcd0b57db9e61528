"""A part of a spilled run as a `Trace`, and what a part alone cannot tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dasfprof.analysis.large.extent import Extent, PartEnding
from dasfprof.analysis.large.spilled import PartFile, SpilledFile
from dasfprof.analysis.model.run import run_of
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


def tell_part(  # noqa: PLR0917
    asked: Asked | None,
    extent: Extent | None,
    files: Sequence[SpilledFile],
    rows: Sequence[list[Batch]],
    part: int,
    parts: int,
) -> Any:
    """Return what a part tells of each of some questions, or of the run's extent if none is asked.

    Asked with an extent, a part tells of the run's ending.
    """
    trace = read_part(files, rows, part, parts)
    if extent is None:
        return Extent.of(trace)
    trace, told = extent.tell(trace), []
    if asked is None:
        return PartEnding.of(trace)
    for name, arguments in asked:
        how = questions.named(name).in_parts
        if isinstance(how, InParts):
            told.append(how.of_part(run_of(trace), **arguments))
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
    rows = [
        [
            piece.nothing() if piece.kind is TASK_RUN else edges
            for piece, edges in zip(file.spilled, file.edges, strict=True)
        ]
        for file in files
    ]
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
