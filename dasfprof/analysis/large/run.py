"""`LargeRun`: a run that is analysed in time windows, either in this process or on a cluster."""

from __future__ import annotations

import dataclasses
import itertools
import os
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dasfprof.analysis.large.extent import Extent, WindowSummary
from dasfprof.analysis.large.windows import Window, WindowedFile, cut_into_windows, read_window
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables import questions
from dasfprof.analysis.tables.questions import InParts, Question, Request
from dasfprof.analysis.trace.progress import track
from dasfprof.config.kinds import Size
from dasfprof.config.options import setting
from dasfprof.database import EventDatabase, FileDatabase
from dasfprof.database.multi import identity_of, open_run
from dasfprof.database.reader import TraceFile, inflated_bytes
from dasfprof.errors import (
    BeyondMemoryError,
    DasfprofError,
    InvalidArgumentError,
    SourceNotFoundError,
)
from dasfprof.text import count_of, format_size

if TYPE_CHECKING:
    from distributed import Client, Future

#: Maximum bytes of memory that an analysis needs per byte of trace files. Large payloads count with
#: their length after decompression.
GROWTH = 16
#: Maximum bytes of memory for one window. Then approximate bytes of memory per task run.
WINDOW, _PER_RUN = 600_000_000, 1500
_MEMORY = Size(name="dasfprof.analysis-memory")
#: Names of tables to compute, with their arguments. They can be sent between processes.
Asked = Sequence[tuple[str, dict[str, Any]]]


class LargeRun:
    """A run on disk that is read in at least `least` windows, each with at most `memory` bytes."""

    def __init__(
        self, sources: Sequence[TraceFile], memory: int, *, least: int = 2, progress: bool
    ) -> None:
        self.sources = sources
        self._memory, self._least, self._progress = memory, least, progress
        self._partial_results: dict[str, list[Any]] = {}

    @cached_property
    def _files(self) -> list[WindowedFile]:
        """The files of the run."""
        files = self.sources
        bar = track(files, "Reading traces", shown=self._progress, total=len(files), unit="file")
        return list(map(WindowedFile.scan, bar))

    @cached_property
    def windows(self) -> list[Window]:
        """The time windows of the run."""
        of_workers = sum(file.of_workers for file in self._files)
        runs = max(of_workers, sum(file.of_scheduler for file in self._files))
        count = max(self._least, -(-_PER_RUN * runs // max(self._memory, 1)))
        return cut_into_windows(self._files, count)

    def answers(self, question: Question, arguments: Mapping[str, Any]) -> bool:
        """Return whether the table of a question can be computed in time windows.

        Raises
        ------
        InvalidArgumentError
            If the argument `by` of the question is invalid.
        """
        how = question.in_parts
        if how is None or self.why_not:
            return False
        return not isinstance(how, InParts) or how.supports(arguments)

    def ask(self, question: Question, arguments: Mapping[str, Any]) -> pd.DataFrame:
        """Compute the table of a question in time windows, and return it."""
        how = question.in_parts
        if not isinstance(how, InParts):
            return question.answer(self.frame, **arguments)
        request = Request(question, arguments)
        self.gather([request])
        return how.combine(self.frame, self._partial_results[request.file_stem], **arguments)

    def gather(self, requests: Iterable[Request]) -> None:
        """Compute the partial results of several tables in one pass over the windows."""
        asked = {
            request.file_stem: request
            for request in requests
            if isinstance(request.question.in_parts, InParts)
            and self.answers(request.question, request.arguments)
            and request.file_stem not in self._partial_results
        }
        if asked:
            answers: dict[str, list[Any]] = {name: [] for name in asked}
            names = [(item.question.name, dict(item.arguments)) for item in asked.values()]
            for part in self._of_windows(names, self.extent, "Analysing traces"):
                for (name, request), result in zip(asked.items(), part, strict=True):
                    answers[name].append(result)
                    how = request.question.in_parts
                    if isinstance(how, InParts) and how.fold is not None and len(answers[name]) > 1:
                        answers[name] = [how.fold(*answers[name])]
            self._partial_results |= answers

    @cached_property
    def why_not(self) -> str:
        """Reason why the run cannot be analysed in time windows, or an empty text if it can."""
        if sum(file.unknown_inputs for file in self._files):
            return "some files do not contain the sizes of inputs, so the graph is needed"
        if self.extent.rows != sum(file.of_workers for file in self._files):
            return "some files have other clocks than Unix time"
        if not self.extent.clocks_fit:
            return "the clocks of some workers differ too much from the scheduler's clock"
        return ""

    @cached_property
    def frame(self) -> Run:
        """The run without its task runs and transfers, with facts about the full run."""
        return self.extent.run_of(self._frame)

    @cached_property
    def _frame(self) -> Run:
        return read_window(self._files, None)

    @cached_property
    def _unread(self) -> Extent:
        spans = np.concatenate([file.spans for file in self._files])
        begin, end = np.where(np.isfinite(spans), spans, np.nan).T
        return Extent.before_reading(
            self._frame, np.fmin.reduce(begin, initial=np.nan), np.fmax.reduce(end, initial=np.nan)
        )

    @cached_property
    def extent(self) -> Extent:
        """Facts about the full run, computed from all windows."""
        summaries = list(self._of_windows(None, self._unread, "Joining task runs"))
        extent = self._unread.widened(self._frame, summaries)
        if extent.may_be_unfinished(self._frame, summaries):
            again = self._of_windows(None, extent, "Looking for unfinished task runs")
            extent = extent.with_end(self._frame, list(again))
        return dataclasses.replace(extent, knows_end=True)

    def _of_windows(self, asked: Asked | None, extent: Extent, what: str) -> Iterator[Any]:
        """Yield the result of `process_window` for each window.

        `what` is the label of the progress bar.
        """
        count = len(self.windows)
        for index in track(range(count), what, shown=self._progress, total=count, unit="part"):
            yield process_window(asked, extent, self._files, self.windows[index], index)


def process_window(
    asked: Asked | None, extent: Extent, files: Sequence[WindowedFile], window: Window, index: int
) -> Any:
    """Return a window's partial results for the tables `asked`, or its summary if `asked` is None.

    `extent` has facts about the full run. `files` are all files of the run, in order.
    """
    run = extent.run_of(read_window(files, window.widened(extent.around)), window, index)
    if asked is None:
        return WindowSummary.from_run(run, window.begin + extent.around / 2)
    hows = [(questions.named(name).in_parts, arguments) for name, arguments in asked]
    return [how.of_part(run, **arguments) for how, arguments in hows if isinstance(how, InParts)]


def _free_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def memory_limit() -> int:
    """Return the maximum number of bytes of memory for an analysis.

    Raises
    ------
    InvalidArgumentError
        If the setting is not a size.
    """
    wanted = setting("analysis-memory")
    return _free_memory() // 4 if wanted is None else _MEMORY.check(wanted)


def memory_of_window(databases: Sequence[EventDatabase]) -> int:
    """Return the bytes of memory for one window, or 0 if the full run fits into memory."""
    limit, are_ours = memory_limit(), all(isinstance(item, FileDatabase) for item in databases)
    fits = needed_memory(databases) <= limit
    return 0 if fits or not are_ours else max(min(limit // 2, WINDOW), 1)


def needed_memory(databases: Sequence[EventDatabase]) -> int:
    """Return the approximate bytes of memory that the analysis of a full run needs."""
    paths = [item.path for item in databases if isinstance(item, FileDatabase)]
    return GROWTH * sum(inflated_bytes(path) for path in paths if path.exists())


def refuse_too_large(needed: int, why: str = "") -> None:
    """Raise an error if a run needs more bytes (`needed`) than are free.

    `why` is the reason why the run cannot be analysed in time windows, or empty if it can.

    Raises
    ------
    BeyondMemoryError
        If the run needs more memory than is free.
    """
    free = _free_memory()
    if needed > free:
        answered = ", ".join(item.name for item in questions.all() if item.in_parts)
        raise BeyondMemoryError(
            f"This needs the full run in memory: about {format_size(needed)}, but only "
            f"{format_size(free)} are free. Use a host with more memory. "
            + (
                f"It cannot be answered in time windows: {why}."
                if why
                else f"In time windows, these can be answered: {answered}."
            )
        )


#: Path, identity, and size in bytes of a file.
FileFacts = tuple[str, str, int]


class ClusterRun(LargeRun):
    """A run whose files are read by those workers of a cluster that can see all of these files.

    `workers` are the addresses of these workers. The client must not be asynchronous.
    """

    def __init__(
        self, client: Client, files: Sequence[FileFacts], workers: Sequence[str], *, progress: bool
    ) -> None:
        # `client.scheduler_info()` may not contain all workers, so the scheduler is asked.
        known = client.sync(client.scheduler.identity)["workers"]
        facts = [known[address] for address in workers if address in known]
        self._threads = sum(worker["nthreads"] for worker in facts)
        # All threads of a worker may process a window at the same time, and the worker needs memory
        # for other purposes too.
        limits = [(each["memory_limit"] or np.inf) // each["nthreads"] // 3 for each in facts]
        memory, least = int(min([WINDOW, *limits])), max(2, self._threads)
        sources = [TraceFile(Path(path)) for path, _, _ in files]
        super().__init__(sources, memory, least=least, progress=progress)
        self._client, self._workers = client, list(workers)

    @cached_property
    def _looked_through(self) -> list[Future]:
        """Futures of the files, which are scanned on workers."""
        return [self._submit(WindowedFile.scan, source) for source in self.sources]

    @cached_property
    def _files(self) -> list[WindowedFile]:
        return list(self._results(iter(self._looked_through), len(self.sources), "Reading traces"))

    def _of_windows(self, asked: Asked | None, extent: Extent, what: str) -> Iterator[Any]:
        futures = (
            self._submit(
                process_window, asked, extent.of_window(index), self._looked_through, window, index
            )
            for index, window in enumerate(self.windows)
        )
        return self._results(futures, len(self.windows), what)

    def _submit(self, function: Any, *arguments: Any) -> Future:
        key = f"{function.__qualname__}-{uuid.uuid4().hex}"
        return self._client.submit(function, *arguments, key=key, workers=self._workers)

    def _results(self, futures: Iterator[Future], total: int, what: str) -> Iterator[Any]:
        """Yield results in the order of `futures`, with a progress bar labelled `what`."""
        # Finished results occupy memory until they are yielded, so few tasks are submitted ahead.
        waiting = deque(itertools.islice(futures, 2 * self._threads))
        for _ in track(range(total), what, shown=self._progress, total=total, unit="task"):
            yield waiting.popleft().result()
            waiting.extend(itertools.islice(futures, 1))


def cluster_run(client: Client, source: Any, *, progress: bool) -> ClusterRun:
    """Return a run that is read by the workers that can see its files.

    Raises
    ------
    InvalidArgumentError
        If the client is asynchronous, the source is not a path, or a file is from DASF's own
        profiler.
    SourceNotFoundError
        If neither the client nor a worker finds a run at `source`, or no worker sees all its files.
    """
    if client.asynchronous:
        raise InvalidArgumentError("client= does not accept an asynchronous client.")
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(
            f"with client=, pass a path or a run's name as source, not {type(source).__name__}."
        )
    return ClusterRun(client, *seen_by_workers(client, os.fspath(source)), progress=progress)


def seen_by_workers(client: Client, source: str) -> tuple[list[FileFacts], list[str]]:
    """Return the files of a run, and the workers that can see all of them under the same path.

    Raises
    ------
    InvalidArgumentError
        If a file is from DASF's own profiler.
    SourceNotFoundError
        If neither the client nor a worker finds a run at `source`, or no worker sees all its files.
    """
    everywhere: dict[str, list[FileFacts]] = client.run(_files_there, source)
    try:
        here = files_of(source)
    except SourceNotFoundError:
        here = []
        if not any(everywhere.values()):
            raise
    wanted = {identity or path for path, identity, _ in itertools.chain(here, *everywhere.values())}
    having = {
        address: files
        for address, files in everywhere.items()
        if {identity or path for path, identity, _ in files} == wanted
    }
    if not having:
        most = max(map(len, everywhere.values()), default=0)
        raise SourceNotFoundError(
            f"no worker of {client.scheduler.address} can see all "
            f"{count_of(len(wanted), 'file')} of {source!r}; the maximum is {most}. Put them "
            "into a directory that the client and the workers see under the same path. Or "
            "collect them on one host (collect() of a run copies them to the client) and analyse "
            "them there, without client=."
        )
    files = max(having.values(), key=lambda listed: sum(size for _, _, size in listed))
    return files, [address for address, listed in having.items() if listed == files]


def files_of(source: str) -> list[FileFacts]:
    """Return the files of a run that this process can see.

    Raises
    ------
    InvalidArgumentError
        If a file is from DASF's own profiler.
    """
    databases = open_run(source).databases
    if not all(isinstance(item, FileDatabase) for item in databases):
        raise InvalidArgumentError(
            "files of DASF's profiler are analysed in memory: remove client=."
        )
    paths = [item.path.resolve() for item in databases if isinstance(item, FileDatabase)]
    return [
        (str(path), identity_of(TraceFile(path).read_header()), path.stat().st_size)
        for path in paths
    ]


def _files_there(source: str) -> list[FileFacts]:
    try:
        return files_of(source)
    except DasfprofError:
        return []
