"""`ClusterRun`: a run that is analysed part by part as Dask tasks, where its files are."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from distributed import Client, Future, get_worker

from dasfprof.analysis.large.extent import Extent
from dasfprof.analysis.large.holders import FileFacts, find_holders
from dasfprof.analysis.large.parts import Asked, tell_part
from dasfprof.analysis.large.run import GROWTH, PART, LargeRun
from dasfprof.analysis.large.spill import spill
from dasfprof.analysis.large.spilled import SpilledFile
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array
from dasfprof.database.reader import TraceFile
from dasfprof.errors import InvalidArgumentError


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
        # `client.scheduler_info()` may tell of no workers: the client itself asks, without them.
        workers = client.sync(client.scheduler.identity)["workers"].values()
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
        self._sizes = [size for _, _, size in files]
        self._token = uuid.uuid4().hex
        self._keepers: list[Future] = []

    @cached_property
    def _spilled(self) -> list[Future]:
        futures: dict[int, Future] = {}
        # The largest first: nobody waits for one that is begun last.
        for place in sorted(range(len(self.sources)), key=self._sizes.__getitem__, reverse=True):
            futures[place] = self._client.submit(
                _spill,
                str(self.sources[place].path),
                self.parts,
                key=f"spill-{self._token}-{place}",
                workers=self._holders[place],
            )
        return [futures[place] for place in range(len(self.sources))]

    @cached_property
    def _places(self) -> list[tuple[str, str]]:
        """For each file the address of the worker that has spilled it, and the directory."""
        places = self._client.map(_place, self._spilled, pure=False)
        found = list(self._results(iter(places), len(places), "Reading traces"))
        self._keepers = [
            self._client.submit(
                _Keeper, directory, key=f"keep-{self._token}-{place}", workers=[address]
            )
            for place, (address, directory) in enumerate(found)
        ]
        return found

    @cached_property
    def _homes(self) -> list[tuple[frozenset[int], list[str]]]:
        """For each thread which spilled files it sees, and all workers that see the same ones.

        Workers of one host do, or with a common disk: nothing then moves between them.
        """
        directories = [directory for _, directory in self._places]
        groups: dict[frozenset[int], list[str]] = {}
        for address, seen in self._client.run(_seen, directories).items():
            groups.setdefault(seen, []).append(address)
        threads = self._client.nthreads()
        by_turns = itertools.zip_longest(
            *(
                [(seen, having)] * sum(threads.get(address, 0) for address in having)
                for seen, having in groups.items()
            )
        )
        return [home for turn in by_turns for home in turn if home]

    @cached_property
    def _files(self) -> list[SpilledFile]:
        """What is not spilled."""
        assert self._places
        found: list[SpilledFile] = [file for file, _, _ in self._client.gather(self._spilled)]
        return found

    def _of_parts(self, asked: Asked | None, extent: Extent | None, what: str) -> Iterator[Any]:
        name = uuid.uuid4().hex
        parts = (self._part(asked, extent, part, f"{name}-{part}") for part in range(self.parts))
        return self._results(parts, self.parts, what)

    def _part(self, asked: Asked | None, extent: Extent | None, part: int, key: str) -> Future:
        seen, workers = self._homes[part % len(self._homes)]
        moved: list[Future | None] = [None] * len(self._places)
        for place, (address, _) in enumerate(self._places):
            if place not in seen:
                moved[place] = self._client.submit(
                    _moved,
                    self._spilled[place],
                    part,
                    key=f"moved-{key}-{place}",
                    workers=[address],
                )
        return self._client.submit(
            _tell,
            asked,
            extent,
            self._spilled,
            moved,
            part,
            self.parts,
            key=f"tell-{key}",
            workers=workers,
        )

    def _results(self, futures: Iterator[Future], total: int, what: str) -> Iterator[Any]:
        """Yield results in their order, and let go of each.

        Few more are submitted than there are threads: what moves for them is in memory.
        """
        ahead = 2 * sum(self._client.nthreads().values())
        waiting = deque(itertools.islice(futures, ahead))
        for _ in track(range(total), what, shown=self._progress, total=total, unit="task"):
            future = waiting.popleft()
            yield future.result()
            future.release()
            waiting.extend(itertools.islice(futures, 1))


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
    return ClusterRun(client, *find_holders(client, source), progress=progress)


#: A spilled file, the address of the worker that has spilled it, and the directory.
_Spilled = tuple[SpilledFile, str, str]


class _Keeper:
    """Removes a directory when the worker lets go of it.

    No task takes it, so that there is no other copy: Dask drops any of several.
    """

    def __init__(self, directory: str) -> None:
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def __reduce__(self) -> Any:
        return object, ()  # a copy keeps nothing


def _spill(path: str, parts: int) -> _Spilled:
    worker = get_worker()
    directory = tempfile.mkdtemp(prefix="dasfprof-", dir=worker.local_directory)
    file = spill(TraceFile(Path(path)), Path(directory), parts)
    return file, str(worker.address), directory


def _place(spilled: _Spilled) -> tuple[str, str]:
    return spilled[1:]


def _seen(directories: list[str]) -> frozenset[int]:
    """Return which directories this process sees: nowhere else has one of that name."""
    return frozenset(place for place, path in enumerate(directories) if Path(path).is_dir())


def _moved(spilled: _Spilled, part: int) -> list[dict[str, Array]]:
    return spilled[0].read(part)


def _tell(  # noqa: PLR0917
    asked: Asked | None,
    extent: Extent | None,
    spilled: list[_Spilled],
    moved: list[list[dict[str, Array]] | None],
    part: int,
    parts: int,
) -> Any:
    files = [file for file, _, _ in spilled]
    rows = [file.rows(part, columns) for file, columns in zip(files, moved, strict=True)]
    return tell_part(asked, extent, files, rows, part, parts)
