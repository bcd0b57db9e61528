"""`SchedulerUnderWay`: writes snapshots of the scheduler's unfinished work, at most one per second.

It also records which copies of results workers are asked to drop. Dask's active memory manager
sends such requests every two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.inspection.views import (
    MOST_WANTED,
    Finished,
    finished_tasks,
    scheduler_view,
)
from dasfprof.recording.dask_internals.undocumented import fingerprint, observe_dropped_copies
from dasfprof.recording.probes.process import resident_memory
from dasfprof.recording.rows import FileRows
from dasfprof.recording.under_way.loop import INTERVAL
from dasfprof.schema.tasks import COPY_DROPPED
from dasfprof.schema.under_way import SCHEDULER_STATE

#: Description of a snapshot in log messages.
_SNAPSHOT = "a snapshot of unfinished work"
#: A function that returns the part of a row that is to be written.
Narrow = Callable[[dict[str, Any]], dict[str, Any]]

#: Seconds between two rows while nothing changes.
QUIET_INTERVAL = 10.0

#: Maximum fraction of the event loop's time that rows may take. On large clusters, rows are written
#: less often, but at least once per `QUIET_INTERVAL`.
SHARE = 0.0005

#: Maximum number of a client's requested results that are searched when the client leaves.
_MOST_WANTED_AT_LAST = 100_000


class SchedulerUnderWay:
    """Writes snapshots of the scheduler's unfinished work. Only `note` may raise an error.

    The object must be created on the scheduler's event loop, which also calls its methods.

    Parameters
    ----------
    scheduler
        The scheduler, whose state is not changed.
    rows
        Writes rows into the trace file.
    narrowed
        A function that returns the part of a row to write, or None to write complete rows.
    """

    def __init__(self, scheduler: Any, rows: FileRows, narrowed: Narrow | None) -> None:
        self._scheduler, self._narrowed = scheduler, narrowed
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._stopped = not names.SCHEDULER_STATE.exist()
        #: Tasks that had finished before recording started.
        self._before: Finished = {} if self._stopped else finished_tasks(scheduler, {})
        self._last: tuple[Any, ...] | None = None
        #: Time when a row is due even without a change (`_due`), and time until which no row is
        #: written (`_pause_until`). Both are on the monotonic clock.
        self._due = self._pause_until = 0.0
        self._loop.call_later(INTERVAL, self._tick)
        self._stop_observing = observe_dropped_copies(scheduler, self._drop, rows.guard)

    def stop(self) -> None:
        """Stop taking snapshots."""
        self._stopped = True
        self._stop_observing()

    def _drop(self, _: object, address: str, keys: list[Any], **__: object) -> None:
        for key in keys:
            self._rows.write(COPY_DROPPED, {"key": key, "worker": address})

    def _tick(self) -> None:
        if not self._stopped:
            self._loop.call_later(INTERVAL, self._tick)
            with self._rows.guard.catching(_SNAPSHOT):
                self._sample()

    def _sample(self) -> None:
        now = monotonic()
        if now < self._pause_until:
            return
        current = fingerprint(self._scheduler)
        if now >= self._due or current != self._last:
            self._last = current
            begin = thread_time()
            self._write("interval")
            self._due = now + QUIET_INTERVAL
            cost = thread_time() - begin
            self._pause_until = now + min(QUIET_INTERVAL, cost / SHARE) - INTERVAL / 2

    def note(self, message: Any) -> None:
        """Write a row if the scheduler logs that it is about to release the tasks of a client."""
        if isinstance(message, dict) and message.get("action") == "remove-client":
            client = message.get("client")
            # The client may be missing, because Dask removes a closed client a second time.
            if client in self._scheduler.clients and not self._stopped:
                self._write("client-left", client, _MOST_WANTED_AT_LAST)

    def close(self) -> None:
        """Write the last row, unless it was already written or the snapshots were stopped."""
        if not self._stopped:
            self._stopped = True
            with self._rows.guard.catching(_SNAPSHOT):
                self._write("closing")

    def _write(
        self, occasion: str, client: str | None = None, most_wanted: int = MOST_WANTED
    ) -> None:
        view = scheduler_view(self._scheduler, most_wanted, self._before)
        view = view if self._narrowed is None else self._narrowed(view)
        facts = {"occasion": occasion, "client": client, "memory": resident_memory()}
        self._rows.write(SCHEDULER_STATE, {**facts, **view})
