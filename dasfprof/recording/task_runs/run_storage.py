"""`RunStorage`: counts the storage requests of one task run, and the time for which it waits.

Requests of a task run are made in its thread, in other threads, and by coroutines of event loops,
often several at the same time. The task run waits for storage while any of its requests is in
progress. If other threads compute for the task run meanwhile, their time is subtracted. For
example, threads of Zarr decompress chunks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.storage_requests import MOST_ITEMS
from dasfprof.recording.task_runs.thread_time import ThreadFile, run_queue_seconds

#: The name that stands for the store if the kernel has counted the bytes.
DISK = "disk"
#: Columns with the number, bytes and seconds of requests: for requests that read, and for requests
#: that write.
_READS, _WRITES = ("reads", "read_size", "reading"), ("writes", "write_size", "writing")
_NOTHING: dict[str, Any] = dict.fromkeys((*_READS, *_WRITES, "unsized"), 0)


class StorageRequest:
    """A storage request in progress."""

    __slots__ = ("begin", "cpu", "is_write", "store")

    def __init__(self, store: str, is_write: bool) -> None:
        self.store, self.is_write = store, is_write
        self.begin = 0.0
        #: CPU seconds of the task run's thread at the start of the request. None if another thread
        #: or a coroutine waits for the request.
        self.cpu: float | None = None


class RunStorage:
    """Counts the storage requests of one task run. Its methods may be called from any thread.

    Parameters
    ----------
    local
        A `threading.local`. In threads that have computed for a task run, its attribute ``helper``
        is the thread's `ThreadFile`.
    """

    def __init__(self, guard: HookGuard, local: threading.local) -> None:
        self._guard, self._local = guard, local
        # The lock is held for a few instructions. A finalizer may make a request while its thread
        # holds the lock, so the lock must be reentrant.
        self._lock = threading.RLock()
        self._open: set[StorageRequest] = set()
        #: Identities of other threads that are computing for the task run.
        self._helpers: set[int] = set()
        self._since = 0.0
        #: Seconds in which requests were in progress, in which helpers computed, and in which both
        #: was the case.
        self._waiting = self._helped = self._both = 0.0
        self._helpers_cpu = self._helpers_queue = 0.0
        #: By store: the counts with the names in `_NOTHING`.
        self._sums: dict[str, dict[str, Any]] = {}
        #: Whether the task run is reading from a file of fsspec or an array of Zarr.
        self.in_read = False
        #: By store: bytes that these reads returned. Then stores with requests outside such reads.
        self._used: dict[str, int] = {}
        self._outside: set[str] = set()
        #: Hashes of the objects, or ranges of objects, that were read.
        self._items: dict[str, None] = {}

    def caught(self) -> None:
        """Pass the exception that is being handled to the guard."""
        self._guard.caught("what a task moved")

    def begin(
        self, store: str, is_write: bool, item: str | None, in_thread: bool
    ) -> StorageRequest:
        """Record that a request starts, and return the request.

        `in_thread` is whether the calling thread waits for the request. See `read` for `item`.
        """
        request = StorageRequest(store, is_write)
        with self._lock:
            request.begin = self._turn()
            self._open.add(request)
            if not self.in_read and not is_write:
                self._outside.add(store)
            self.read(item)
            if in_thread and threading.get_ident() not in self._helpers:
                request.cpu = thread_time()
        return request

    def read(self, item: str | None) -> None:
        """Record which objects, or parts of objects, are read.

        `item` has their hashes, separated by spaces. It is None if they are unknown.
        """
        with self._lock:
            if item is not None and len(self._items) < MOST_ITEMS:
                self._items[item] = None

    def end_read(self, store_of: Callable[[Any], str | None], source: Any, result: Any) -> None:
        """Record that a read from a file or an array has ended.

        `source` is the file or the array. `store_of` returns the name of its store, or None to
        ignore the read. `result` is None if the read failed.
        """
        try:
            self.in_read, store = False, store_of(source)
            if store is None:
                return
            size = len(result) if isinstance(result, bytes) else getattr(result, "nbytes", None)
            with self._lock:
                if size is None:
                    self._outside.add(store)
                self._sums.setdefault(store, dict(_NOTHING))
                self._used[store] = self._used.get(store, 0) + (size or 0)
        except Exception:
            self.caught()

    def end(self, request: StorageRequest, size: int | None) -> None:
        """Record that a request has ended, with its number of bytes (None if unknown)."""
        cpu = 0.0 if request.cpu is None else thread_time() - request.cpu
        with self._lock:
            if request not in self._open:  # The task run has ended before the request.
                return
            self._count(request, size, self._turn())
            self._waiting -= cpu

    def help(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in this thread, and count its time as computing for the task run."""
        begun = self._begin_help()
        try:
            return function(*args, **kwargs)
        finally:
            if begun is not None:
                self._end_help(*begun)

    def _begin_help(self) -> tuple[ThreadFile, bytes | None, float] | None:
        try:
            file = getattr(self._local, "helper", None)
            if file is None:
                file = self._local.helper = ThreadFile()
            begun = file, file.read(), file.cpu
            with self._lock:
                self._turn()
                self._helpers.add(threading.get_ident())
            return begun
        except Exception:
            self.caught()
            return None

    def _end_help(self, file: ThreadFile, before: bytes | None, cpu: float) -> None:
        try:
            waited = run_queue_seconds((before, file.read(), None, True, 0.0)) or 0.0
            with self._lock:
                self._turn()
                self._helpers.discard(threading.get_ident())
                self._helpers_cpu += file.cpu - cpu
                self._helpers_queue += waited
        except Exception:
            self.caught()

    def moved_by_disk(self, read: int, written: int) -> None:
        """Add the bytes that the task run has read from disks and written to disks.

        Both numbers come from the kernel.
        """
        with self._lock:
            sums = self._sums.setdefault(DISK, dict(_NOTHING))
            sums["read_size"] += read
            sums["write_size"] += written

    def close(self) -> list[dict[str, Any]]:
        """Return a row for each store, when the task run has ended."""
        with self._lock:
            now = self._turn()
            if self._items and not self._sums:  # The items need a row.
                self.moved_by_disk(0, 0)
            # Requests in progress count as if they ended now, with unknown bytes.
            while self._open:
                self._count(next(iter(self._open)), None, now)
            # Several helpers may compute at the same time.
            cpu = min(self._helped, self._helpers_cpu)
            queue = min(self._helped - cpu, self._helpers_queue)
            meanwhile = (cpu + queue) * self._both / max(self._helped, 1e-9)
            waiting = max(self._waiting - meanwhile, 0.0)
            seconds = [sums["reading"] + sums["writing"] for sums in self._sums.values()]
            shares = [spent / max(sum(seconds), 1e-9) for spent in seconds]
            return [
                {
                    **sums,
                    "protocol": store,
                    "waiting": waiting * share,
                    "helpers_cpu": cpu * share,
                    "helpers_queue": queue * share,
                    "used": -1 if store in self._outside else self._used.get(store, -1),
                    "items": " ".join(self._items),
                }
                for (store, sums), share in zip(self._sums.items(), shares, strict=True)
            ]

    def _turn(self) -> float:
        """Add the time since the last call to the sums of seconds, and return the current time."""
        now = perf_counter()
        passed, self._since = now - self._since, now
        if self._open:
            self._waiting += passed
        if self._helpers:
            self._helped += passed
        if self._open and self._helpers:
            self._both += passed
        return now

    def _count(self, request: StorageRequest, size: int | None, now: float) -> None:
        self._open.discard(request)
        count, moved, seconds = _WRITES if request.is_write else _READS
        sums = self._sums.setdefault(request.store, dict(_NOTHING))
        sums[count] += 1
        sums[moved] += size or 0
        sums[seconds] += now - request.begin
        sums["unsized"] += size is None
