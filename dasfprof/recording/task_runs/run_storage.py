"""`RunStorage`: what one task run read from storage and wrote to it, and for how long it waited.

Requests of a run are made in its thread, in other threads, and by coroutines of event loops, often
several at a time. The run waits for storage while any of them is in progress, but for what is
computed for it meanwhile, as by Zarr's threads that decompress what has arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.thread_time import ThreadFile, open_own, run_queue_seconds

#: Stands for the store where the kernel counted.
DISK = "disk"
#: Limit of the items that are recorded of a run.
_MOST_ITEMS = 16
#: The columns of requests, bytes and seconds, of those that read and those that write.
_READS, _WRITES = ("reads", "read_size", "reading"), ("writes", "write_size", "writing")
_NOTHING: dict[str, Any] = dict.fromkeys((*_READS, *_WRITES, "unsized"), 0)


class Request:
    """A request in progress."""

    __slots__ = ("begin", "cpu", "is_write", "store")

    def __init__(self, store: str, is_write: bool) -> None:
        self.store, self.is_write = store, is_write
        self.begin = 0.0
        #: CPU seconds of the run's thread; None: another one makes the request, or a coroutine.
        self.cpu: float | None = None


class RunStorage:
    """The storage requests of one task run, of any thread. Errors are the guard's.

    Parameters
    ----------
    guard
        Handles errors.
    local
        Owns the file of each thread that computes for a run.
    """

    def __init__(self, guard: HookGuard, local: threading.local) -> None:
        self._guard, self._local = guard, local
        # Taken for a few instructions. A finalizer may make a request while its thread holds it.
        self._lock = threading.RLock()
        self._open: set[Request] = set()
        #: Identities of other threads that compute for the run now.
        self._helpers: set[int] = set()
        self._since = 0.0
        #: Seconds while requests were in progress, while helpers were there, and while both were.
        self._waiting = self._helped = self._both = 0.0
        self._helpers_cpu = self._helpers_queue = 0.0
        #: By store, see `_NOTHING`.
        self._sums: dict[str, dict[str, Any]] = {}
        #: Hashes of objects, and ranges of them, that were read.
        self._items: dict[str, None] = {}

    def caught(self) -> None:
        """Handle the current exception."""
        self._guard.caught("what a task moved")

    def begin(self, store: str, is_write: bool, item: str | None, in_thread: bool) -> Request:
        """Note that a request begins; `in_thread`: the calling thread waits for its end."""
        request = Request(store, is_write)
        with self._lock:
            request.begin = self._turn()
            self._open.add(request)
            if item is not None and len(self._items) < _MOST_ITEMS:
                self._items[item] = None
            if in_thread and threading.get_ident() not in self._helpers:
                request.cpu = thread_time()
        return request

    def end(self, request: Request, size: int | None) -> None:
        """Note that a request has ended; of unknown size if it is None."""
        cpu = 0.0 if request.cpu is None else thread_time() - request.cpu
        with self._lock:
            if request not in self._open:  # the run has ended before it
                return
            self._count(request, size, self._turn())
            self._waiting -= cpu

    def help(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in a thread that computes for the run."""
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
                file = self._local.helper = open_own()
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
        """Add bytes of disks."""
        with self._lock:
            sums = self._sums.setdefault(DISK, dict(_NOTHING))
            sums["read_size"] += read
            sums["write_size"] += written

    def close(self) -> list[dict[str, Any]]:
        """Return a row for each store, now that the run has ended.

        Requests that are still in progress count until now, and are of unknown size.
        """
        with self._lock:
            now = self._turn()
            while self._open:
                self._count(next(iter(self._open)), None, now)
            # They may compute side by side.
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
                    "items": "" if store == DISK else " ".join(self._items),
                }
                for (store, sums), share in zip(self._sums.items(), shares, strict=True)
            ]

    def _turn(self) -> float:
        """Add the time since the last change; return the time."""
        now = perf_counter()
        passed, self._since = now - self._since, now
        if self._open:
            self._waiting += passed
        if self._helpers:
            self._helped += passed
        if self._open and self._helpers:
            self._both += passed
        return now

    def _count(self, request: Request, size: int | None, now: float) -> None:
        self._open.discard(request)
        count, moved, seconds = _WRITES if request.is_write else _READS
        sums = self._sums.setdefault(request.store, dict(_NOTHING))
        sums[count] += 1
        sums[moved] += size or 0
        sums[seconds] += now - request.begin
        sums["unsized"] += size is None
