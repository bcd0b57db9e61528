"""`ClusterRun`: a run that is analysed window by window as Dask tasks, on workers that see it."""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from distributed import Client, Future

from dasfprof.analysis.large.extent import Extent
from dasfprof.analysis.large.run import WINDOW, Asked, LargeRun, tell_window
from dasfprof.analysis.large.windows import WindowedFile
from dasfprof.analysis.trace.progress import track
from dasfprof.database import FileDatabase
from dasfprof.database.multi import identity_of, open_run
from dasfprof.database.reader import TraceFile
from dasfprof.errors import DasfprofError, InvalidArgumentError, SourceNotFoundError
from dasfprof.text import count_of

#: What is told of a file: its path, what tells it from all others, and its bytes.
FileFacts = tuple[str, str, int]


class ClusterRun(LargeRun):
    """A run whose files are read by workers that see all of them.

    Parameters
    ----------
    client
        A client of the cluster, not an asynchronous one.
    files
        The files.
    workers
        The addresses of the workers that see them.
    progress
        Whether to show bars.
    """

    def __init__(
        self, client: Client, files: Sequence[FileFacts], workers: Sequence[str], *, progress: bool
    ) -> None:
        # `client.scheduler_info()` may tell of no workers: the client itself asks, without them.
        known = client.sync(client.scheduler.identity)["workers"]
        facts = [known[address] for address in workers if address in known]
        self._threads = sum(worker["nthreads"] for worker in facts)
        # All threads of a worker may have a window at once, and its memory is not for them alone.
        shares = [
            worker["memory_limit"] // worker["nthreads"] // 3
            for worker in facts
            if worker["memory_limit"]
        ]
        sources = [TraceFile(Path(path)) for path, _, _ in files]
        least = max(2, self._threads)
        super().__init__(sources, min([WINDOW, *shares]), least=least, progress=progress)
        self._client, self._workers = client, list(workers)

    @cached_property
    def _looked_through(self) -> list[Future]:
        """The files, looked through on the workers."""
        return [self._submit(WindowedFile.of, source) for source in self.sources]

    @cached_property
    def _files(self) -> list[WindowedFile]:
        count = len(self.sources)
        return list(self._results(iter(self._looked_through), count, "Reading traces"))

    def _of_windows(self, asked: Asked | None, extent: Extent, what: str) -> Iterator[Any]:
        futures = (
            self._submit(
                tell_window, asked, extent.of_window(place), self._looked_through, window, place
            )
            for place, window in enumerate(self.windows)
        )
        return self._results(futures, len(self.windows), what)

    def _submit(self, function: Any, *arguments: Any) -> Future:
        key = f"{function.__qualname__}-{uuid.uuid4().hex}"
        return self._client.submit(function, *arguments, key=key, workers=self._workers)

    def _results(self, futures: Iterator[Future], total: int, what: str) -> Iterator[Any]:
        """Yield results in their order.

        Few more are submitted than there are threads: what they tell waits in memory.
        """
        waiting = deque(itertools.islice(futures, 2 * self._threads))
        for _ in track(range(total), what, shown=self._progress, total=total, unit="task"):
            yield waiting.popleft().result()
            waiting.extend(itertools.islice(futures, 1))


def cluster_run(client: Client, source: Any, *, progress: bool) -> ClusterRun:
    """Find the workers that see the files of a run.

    Raises
    ------
    InvalidArgumentError
        If the client is asynchronous, or the source no path, or of DASF's own profiler.
    SourceNotFoundError
        If neither the client nor a worker has such a run, or no worker sees all of its files.
    """
    if client.asynchronous:
        raise InvalidArgumentError("client= takes a client that is not asynchronous.")
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(
            f"with client= the source is a path or a run's name, not {type(source).__name__}."
        )
    return ClusterRun(client, *seen_by_workers(client, os.fspath(source)), progress=progress)


def seen_by_workers(client: Client, source: str) -> tuple[list[FileFacts], list[str]]:
    """Find the files of a run, and which workers see all of them, under one path.

    Raises
    ------
    InvalidArgumentError
        If a file is of DASF's own profiler.
    SourceNotFoundError
        If neither the client nor a worker has such a run, or no worker sees all of its files.
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
            f"no worker of {client.scheduler.address} sees all {count_of(len(wanted), 'file')} of "
            f"{source!r}, but {most} at most: put them into a directory that the client and the "
            "workers see under the same path, or gather them on one machine (collect() of a run "
            "copies them to the client) and analyse them there, without client=."
        )
    files = max(having.values(), key=lambda found: sum(size for _, _, size in found))
    return files, [address for address, found in having.items() if found == files]


def files_of(source: str) -> list[FileFacts]:
    """Return the files of a run that this process sees.

    Raises
    ------
    InvalidArgumentError
        If one is of DASF's own profiler.
    """
    databases = open_run(source).databases
    if not all(isinstance(item, FileDatabase) for item in databases):
        raise InvalidArgumentError(
            "files of DASF's own profiler are analysed in memory: leave client= out."
        )
    return [_facts(item.path) for item in databases if isinstance(item, FileDatabase)]


def _facts(path: Path) -> FileFacts:
    path = path.resolve()
    return str(path), identity_of(TraceFile(path).read_header()), path.stat().st_size


def _files_there(source: str) -> list[FileFacts]:
    try:
        return files_of(source)
    except DasfprofError:
        return []
