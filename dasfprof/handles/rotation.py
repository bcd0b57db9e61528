"""`Rotation`: divides the recording of a scheduler's preload into runs, and removes old runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasfprof.database.ends import SCHEDULER
from dasfprof.database.reader import TraceFile, intact_header
from dasfprof.recording.cluster.calls import aside
from dasfprof.recording.cluster.clients import end_run, run_in_background
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.shipping.file_tails import profiles_of
from dasfprof.text import format_size

logger = logging.getLogger(__name__)

#: Seconds between two checks of the run's size.
_INTERVAL = 60.0
#: Maximum size of one run as a fraction of `keep_size`, so that there are older runs to remove.
_SHARE = 0.25
_DAY = 86400.0
#: Threshold (seconds): if the last write of an unclosed run is older, the run has ended. A
#: scheduler writes at least every 10 s.
_ABANDONED = 3600.0


@dataclass(frozen=True)
class Limits:
    """Limits of the runs that a preload records. Each field is the setting with the same name."""

    run_length: float
    keep_size: int
    keep_days: float


class Rotation:
    """Starts another run when the current run is long or large, and removes the oldest runs.

    Its methods run in the scheduler's event loop.

    Parameters
    ----------
    settings
        The run that is being recorded.
    begin
        Function that starts another run and returns its settings.
    clock
        Function that returns Unix seconds.
    """

    def __init__(
        self,
        scheduler: Any,
        limits: Limits,
        settings: RunSettings,
        begin: Callable[[], Awaitable[RunSettings]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler, self._limits, self._begin, self._clock = scheduler, limits, begin, clock
        #: The run that is being recorded.
        self.settings = settings
        self._since = clock()

    def start(self) -> None:
        """Start regular checks, and immediately remove old runs of an earlier scheduler."""
        run_in_background(self._remove())
        self._wait()

    def _wait(self) -> None:
        interval = min(_INTERVAL, self._limits.run_length)
        asyncio.get_running_loop().call_later(
            interval, lambda: run_in_background(self._check_again())
        )

    async def _check_again(self) -> None:
        if self._scheduler.status.name not in ("init", "running"):
            return
        try:
            await self.check()
        except Exception:
            logger.warning("dasfprof could not start another run", exc_info=True)
        self._wait()

    async def check(self) -> None:
        """If the current run is long or large enough, start another run and remove old runs."""
        size = await aside(_size_of, self.settings)
        age = self._clock() - self._since
        if age < self._limits.run_length and size < _SHARE * self._limits.keep_size:
            return
        before, self._since = self.settings, self._clock()
        self.settings = await self._begin()
        await end_run(before, {}, self._scheduler)
        await self._remove()

    async def _remove(self) -> None:
        if not self.settings.storage:
            now = self._clock()
            await aside(remove_old_runs, self.settings, self._limits, now)


def _size_of(settings: RunSettings) -> int:
    """Return the size of a run's files in bytes."""
    files = Path(settings.directory).iterdir()
    return sum(path.stat().st_size for path in files if path.name.startswith(f"{settings.name}-"))


def remove_old_runs(settings: RunSettings, limits: Limits, now: float) -> None:
    """Remove the oldest runs of preloads in a directory until the remaining runs meet the limits.

    Parameters
    ----------
    settings
        The run that is being recorded, which needs space in the directory.
    now
        Unix seconds.
    """
    runs = sorted(_ended_runs(settings, now))
    total = sum(size for _, _, _, size in runs)
    for created, name, files, size in runs:
        is_old = now - created > limits.keep_days * _DAY
        if total <= (1 - _SHARE) * limits.keep_size and not is_old:
            return
        for path in files:
            with suppress(OSError):
                path.unlink()
        total -= size
        logger.info("removed run %r (%s): %s", name, format_size(size), settings.directory)


def _ended_runs(settings: RunSettings, now: float) -> Iterator[tuple[float, str, list[Path], int]]:
    """Yield the start, name, files and bytes of each run of a preload that has ended."""
    runs: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path in Path(settings.directory).glob("*.msgpack"):
        header = intact_header(path)
        if header is not None and header.get("removable"):
            runs.setdefault(str(header.get("run_uuid")), []).append((path, header))
    runs.pop(settings.uuid, None)
    for files in runs.values():
        facts = [path.stat() for path, _ in files]
        closed = any(h.get("plugin") == SCHEDULER and TraceFile(p).is_closed() for p, h in files)
        if closed or now - max(fact.st_mtime for fact in facts) > _ABANDONED:
            name, created = str(files[0][1]["run"]), float(files[0][1]["run_created"])
            paths = [each for path, _ in files for each in (path, *profiles_of(path))]
            yield created, name, paths, sum(fact.st_size for fact in facts)
