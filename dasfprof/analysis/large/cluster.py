"""`ClusterRun`: a run that is analysed part by part as Dask tasks, where its files are."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from distributed import Client, Future, get_worker

from dasfprof.analysis.large.parts import Asked, Extent, tell_part
from dasfprof.analysis.large.run import GROWTH, PART, LargeRun
from dasfprof.analysis.large.spill import spill
from dasfprof.analysis.large.spilled import SpilledFile
from dasfprof.analysis.trace.progress import track
from dasfprof.database import FileDatabase
from dasfprof.database.block_codec import Batch
from dasfprof.database.multi import identity_of, open_run
from dasfprof.database.reader import TraceFile
from dasfprof.errors import (
    DasfprofError,
    InvalidArgumentError,
    MissingExtraError,
    SourceNotFoundError,
)

#: What is told of a file: its path, what tells it from all others, and its bytes.
FileFacts = tuple[str, str, int]


class ClusterRun(LargeRun):
    """A run whose files are spilled and read by the workers that have them.

    Parameters
    ----------
    client
        A client of the cluster, not an asynchronous one.
    files
        The files, as the client or the workers know them.
    holders
        For each the addresses of the workers that have it.
    progress
        Whether to show bars.
    """

    def __init__(
        self,
        client: Client,
        files: Sequence[FileFacts],
        holders: Sequence[list[str]],
        *,
        progress: bool,
    ) -> None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        threads = sum(worker["nthreads"] for worker in workers)
        # All threads of a worker may have a part at once, and its memory is not for them alone.
        shares = [
            worker["memory_limit"] // worker["nthreads"] // 3
            for worker in workers
            if worker["memory_limit"]
        ]
        needed = GROWTH * sum(size for _, _, size in files)
        parts = max(2, threads, -(-needed // max(1, min([PART, *shares]))))
        super().__init__([TraceFile(Path(path)) for path, _, _ in files], parts, progress=progress)
        self._client, self._holders = client, holders
        self._token = uuid.uuid4().hex

    @cached_property
    def _spilled(self) -> list[Future]:
        return [
            self._client.submit(
                _spill,
                str(source.path),
                self.parts,
                key=f"spill-{self._token}-{place}",
                workers=holders,
            )
            for place, (source, holders) in enumerate(zip(self.sources, self._holders, strict=True))
        ]

    @cached_property
    def _places(self) -> list[str]:
        """The addresses of the workers that have spilled the files."""
        places = self._results(
            self._client.map(_place, self._spilled, pure=False), "Reading traces"
        )
        return list(places)

    @cached_property
    def _files(self) -> list[SpilledFile]:
        """What is not spilled."""
        assert self._places
        found: list[SpilledFile] = [kept.file for kept in self._client.gather(self._spilled)]
        return found

    def _of_parts(self, asked: Asked | None, what: str) -> Iterator[Any]:
        extent = None if asked is None else self.extent
        name = f"tell-{uuid.uuid4().hex}"
        return self._results(
            [self._part(asked, extent, part, f"{name}-{part}") for part in range(self.parts)], what
        )

    def _part(self, asked: Asked | None, extent: Extent | None, part: int, key: str) -> Future:
        pairs = enumerate(zip(self._spilled, self._places, strict=True))
        rows = [
            self._client.submit(_rows, spilled, part, key=f"rows-{key}-{place}", workers=[address])
            for place, (spilled, address) in pairs
        ]
        return self._client.submit(
            _tell, asked, extent, self._spilled, rows, part, self.parts, key=key
        )

    def _results(self, futures: list[Future], what: str) -> Iterator[Any]:
        """Yield results in their order, and let go of each."""
        total = len(futures)
        waiting = iter([futures.pop(0) for _ in range(total)])
        for future in track(waiting, what, shown=self._progress, total=total, unit="task"):
            yield future.result()
            future.release()


def cluster_run(client: Client, source: Any, *, progress: bool) -> ClusterRun:
    """Find who has the files of a run.

    Raises
    ------
    InvalidArgumentError
        If the client is asynchronous, or the source no path.
    SourceNotFoundError
        If neither the client nor a worker has such a run, or no worker has one of its files.
    MissingExtraError
        If a worker lacks what it takes.
    """
    if client.asynchronous:
        raise InvalidArgumentError("client= takes a client that is not asynchronous.")
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(
            f"with client= the source is a path or a run's name, not {type(source).__name__}."
        )
    _check_workers(client)
    try:
        wanted = files_of(source)
    except SourceNotFoundError:
        everywhere = client.run(_files_there, str(source))
        wanted = _longest(itertools.chain.from_iterable(everywhere.values()))
        if not wanted:
            raise
    else:
        everywhere = client.run(_among, wanted)
    holders = [
        [address for address, found in everywhere.items() if file in found] for file in wanted
    ]
    check_holders(client, wanted, holders)
    return ClusterRun(client, wanted, holders, progress=progress)


def check_holders(
    client: Client, wanted: Sequence[FileFacts], holders: Sequence[list[str]]
) -> None:
    """Check that some worker has each file.

    Raises
    ------
    SourceNotFoundError
        If none has one.
    """
    for (path, _, _), having in zip(wanted, holders, strict=True):
        if not having:
            raise SourceNotFoundError(
                f"no worker of {client.scheduler.address} has {path}: put the run's files where "
                "the workers see them, under the same path, or leave client= out."
            )


def files_of(source: Any) -> list[FileFacts]:
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


def _among(wanted: list[FileFacts]) -> list[FileFacts]:
    """Return which files this process has: of the same name and content, by the header."""
    return [file for file in wanted if Path(file[0]).is_file() and _facts(Path(file[0])) == file]


def _longest(found: Any) -> list[FileFacts]:
    """Return each file once: the longest of its copies."""
    kept: dict[str, FileFacts] = {}
    for path, identity, size in found:
        known = kept.get(identity or path)
        if known is None or known[2] < size:
            kept[identity or path] = path, identity, size
    return sorted(kept.values())


def _check_workers(client: Client) -> None:
    def missing() -> list[str]:
        import importlib.util

        return [name for name in ("dasfprof", "pyarrow") if not importlib.util.find_spec(name)]

    for address, lacks in client.run(missing).items():
        if lacks:
            raise MissingExtraError(
                f"the worker {address} lacks {' and '.join(lacks)}: there, too, "
                'pip install "dasfprof[big]".'
            )


class _Kept:
    """A spilled file in the memory of a worker, whose directory goes when it goes."""

    def __init__(self, file: SpilledFile, address: str, directory: Path | None) -> None:
        self.file, self.address = file, address
        if directory is not None:
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def __reduce__(self) -> Any:
        return _Kept, (self.file, self.address, None)  # a copy keeps nothing


def _spill(path: str, parts: int) -> _Kept:
    worker = get_worker()
    directory = Path(tempfile.mkdtemp(prefix="dasfprof-", dir=worker.local_directory))
    return _Kept(spill(TraceFile(Path(path)), directory, parts), str(worker.address), directory)


def _place(spilled: _Kept) -> str:
    return spilled.address


def _rows(spilled: _Kept, part: int) -> list[Batch]:
    return spilled.file.rows(part)


def _tell(  # noqa: PLR0917
    asked: Asked | None,
    extent: Extent | None,
    spilled: list[_Kept],
    rows: list[list[Batch]],
    part: int,
    parts: int,
) -> Any:
    return tell_part(asked, extent, [kept.file for kept in spilled], rows, part, parts)
