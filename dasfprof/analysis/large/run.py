"""`LargeRun`: a run that is analysed part by part, in this process."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from dask.utils import parse_bytes

from dasfprof.analysis.large.extent import Ending, Extent, PartEnding
from dasfprof.analysis.large.parts import Asked, needs_extent, read_frame, tell_part
from dasfprof.analysis.large.sorting import SortedPieces, write_rows
from dasfprof.analysis.large.spill import spill
from dasfprof.analysis.large.spilled import SpilledFile
from dasfprof.analysis.model.run import run_of
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.in_parts import InParts
from dasfprof.analysis.tables.questions import Question, Request
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.progress import track
from dasfprof.config import setting
from dasfprof.database import EventDatabase, FileDatabase
from dasfprof.database.reader import TraceFile
from dasfprof.errors import (
    BeyondMemoryError,
    CannotWriteError,
    InvalidArgumentError,
    MissingExtraError,
)
from dasfprof.text import format_size

#: Bytes that the analysis takes in memory for each byte of trace files, at most.
GROWTH = 16
#: Bytes of memory that a part takes, at most.
PART = 600_000_000
#: What the extra installs.
_EXTRA = ("duckdb", "pyarrow")


class LargeRun:
    """A run on disk, in parts.

    Parameters
    ----------
    sources
        Its trace files.
    parts
        How many parts to make.
    progress
        Whether to show bars.
    """

    def __init__(self, sources: Sequence[TraceFile], parts: int, *, progress: bool) -> None:
        self.parts, self.sources = parts, sources
        self._progress = progress
        self._directory = _temporary()
        self._told: dict[str, list[Any]] = {}

    @cached_property
    def _files(self) -> list[SpilledFile]:
        """The files, spilled as soon as something is asked."""
        directory, files = Path(self._directory.name), self.sources
        bar = track(files, "Reading traces", shown=self._progress, total=len(files), unit="file")
        return [spill(file, directory / str(place), self.parts) for place, file in enumerate(bar)]

    def answers(self, question: Question, arguments: Mapping[str, Any]) -> bool:
        """Return whether a question can be answered part by part.

        Raises
        ------
        InvalidArgumentError
            If `by` is none of what it can be.
        """
        question.check_grouping(arguments)
        how = question.in_parts
        if how is None or self.why_not:
            return False
        return not isinstance(how, InParts) or how.take(arguments)

    def ask(self, question: Question, arguments: Mapping[str, Any]) -> pd.DataFrame:
        """Answer a question that can be answered so."""
        how = question.in_parts
        if not isinstance(how, InParts):
            return question.answer(run_of(self.frame), **arguments)
        request = Request(question, arguments)
        self.gather([request])
        told = self._told[request.file_stem]
        if how.sorted_by:
            rows = SortedPieces(self._rows_of(request), how.sorted_by)
            return how.combine(run_of(self.frame), told, rows, **arguments)
        return how.combine(run_of(self.frame), told, **arguments)

    def _rows_of(self, request: Request) -> Path:
        """Return the directory of the rows that parts told."""
        return Path(self._directory.name) / f"rows-{request.file_stem}"

    def gather(self, requests: Iterable[Request]) -> None:
        """Look at all parts once for several questions."""
        asked = {
            request.file_stem: request
            for request in requests
            if isinstance(request.question.in_parts, InParts)
            and self.answers(request.question, request.arguments)
            and request.file_stem not in self._told
        }
        if asked:
            told: dict[str, list[Any]] = {name: [] for name in asked}
            for request in asked.values():
                shutil.rmtree(self._rows_of(request), ignore_errors=True)  # of an earlier try
            names = [(item.question.name, dict(item.arguments)) for item in asked.values()]
            for part in self._of_parts(names, self.extent, "Analysing traces"):
                for (name, request), own in zip(asked.items(), part, strict=True):
                    told[name].append(self._kept(request, own))
            self._told |= told

    def _kept(self, request: Request, told: Any) -> Any:
        """Keep the rows that a part told on disk; returns the rest of what it told."""
        if not (
            isinstance(request.question.in_parts, InParts) and request.question.in_parts.sorted_by
        ):
            return told
        rest, rows = told
        write_rows(rows, self._rows_of(request))
        return rest

    @cached_property
    def why_not(self) -> str:
        """Why the run cannot be analysed in parts; empty: it can."""
        if sum(file.unknown_inputs for file in self._files):
            return "some files do not tell the sizes of inputs, which takes the graph"
        return ""

    @cached_property
    def frame(self) -> Trace:
        """The run without its task runs and transfers."""
        return self.extent.tell(self._frame)

    @cached_property
    def extent(self) -> Extent:
        """What only the whole run tells."""
        extent = Extent.of(self._frame)
        in_parts = needs_extent(self._files, self._frame)
        if in_parts:
            parts = self._of_parts(None, None, "Joining task runs")
            extent = Extent.of_all([extent, *parts])
        frame = extent.tell(self._frame)
        endings = [PartEnding.of(frame)]
        if in_parts and extent.may_be_unfinished(frame):
            endings += self._of_parts(None, extent, "Looking for unfinished task runs")
        return dataclasses.replace(extent, ending=Ending.of_all(frame, endings))

    @cached_property
    def _frame(self) -> Trace:
        return read_frame(self._files)

    def _of_parts(self, asked: Asked | None, extent: Extent | None, what: str) -> Iterator[Any]:
        """Yield what each part tells, see `tell_part`."""
        bar = track(range(self.parts), what, shown=self._progress, total=self.parts, unit="part")
        for part in bar:
            rows = [file.rows(part) for file in self._files]
            yield tell_part(asked, extent, self._files, rows, part, self.parts)


def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Make a directory for what is spilled.

    Raises
    ------
    CannotWriteError
        If there can be none.
    """
    wanted = setting("spill-directory")
    try:
        return tempfile.TemporaryDirectory(
            prefix="dasfprof-", dir=wanted, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise CannotWriteError(
            f"cannot keep parts of a run in {wanted or tempfile.gettempdir()} ({error.strerror}): "
            "name a directory that exists in the setting dasfprof.spill-directory."
        ) from error


def memory_limit() -> int:
    """Return how many bytes an analysis may take.

    Raises
    ------
    InvalidArgumentError
        If the setting is no size.
    """
    wanted = setting("analysis-memory")
    if wanted is None:
        return int(psutil.virtual_memory().available) // 4
    try:
        limit = int(parse_bytes(wanted))
    except (AttributeError, TypeError, ValueError):  # of what is no size
        limit = 0
    if limit <= 0:
        raise InvalidArgumentError(
            f"dasfprof.analysis-memory is {wanted!r}: give a size such as 4GB, or null for a "
            "quarter of what is free."
        )
    return limit


def parts_of(databases: Sequence[EventDatabase]) -> int:
    """Return in how many parts to analyse a run; 0: it fits into memory.

    Raises
    ------
    MissingExtraError
        If it does not fit, and what that takes is not installed.
    """
    needed, limit = needed_memory(databases), memory_limit()
    if needed <= limit or not all(isinstance(item, FileDatabase) for item in databases):
        return 0
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        if setting("analysis-memory") is None and needed <= psutil.virtual_memory().available:
            return 0
        raise MissingExtraError(
            f"this run takes about {format_size(needed)} of memory, and {format_size(limit)} are "
            "there for it (the setting dasfprof.analysis-memory). To analyse it part by part, "
            f'pip install "dasfprof[big]": {" and ".join(missing)} not installed.'
        )
    return max(2, -(-needed // max(min(limit // 2, PART), 1)))


def needed_memory(databases: Sequence[EventDatabase]) -> int:
    """Return about how many bytes a run takes in memory."""
    paths = [item.path for item in databases if isinstance(item, FileDatabase)]
    return GROWTH * sum(path.stat().st_size for path in paths if path.exists())


def refuse_whole(needed: int, why: str = "") -> None:
    """Refuse to read a whole run that cannot fit into memory.

    Parameters
    ----------
    needed
        The bytes that it takes.
    why
        Why it cannot be analysed in parts at all; empty: it can.

    Raises
    ------
    BeyondMemoryError
        If it needs more memory than is free.
    """
    free = int(psutil.virtual_memory().available)
    if needed > free:
        raise BeyondMemoryError(
            f"this needs the whole run in memory: about {format_size(needed)}, and "
            f"{format_size(free)} are free. Ask it on a machine with more memory. Part by part, "
            + (f"nothing can be told: {why}." if why else f"{_listed()} are answered.")
        )


def _listed() -> str:
    return ", ".join(map(_named, filter(lambda item: item.in_parts, questions.all())))


def _named(question: Question) -> str:
    """Return the name of a question, with what it may be grouped by if not all is answered."""
    by = question.in_parts.by if isinstance(question.in_parts, InParts) else ()
    return f"{question.name} (by {', '.join(by)})" if by else question.name
