"""`TraceWriter`: writes recorded facts to a trace file, in a background thread.

Threads that record only append facts to plain lists (`Source.rows`). Appending is atomic, so these
threads take no lock, encode nothing and open no file. The writer's thread wakes `flush_interval`
seconds after the first fact, or earlier if a list is long (`Source.wake_at`). It then removes the
facts from the lists, encodes them in slices, and appends a frame for each kind of event and each
`commit_threshold` facts. It pauses often (`Pace`), so that an event loop never waits long for it.
While nothing is recorded, it sleeps.

If facts come faster than the writer can write them, the result depends on the recorder. Hooks on
Dask's event loops must not wait: `threshold_reached` drops the newest fact above `max_pending` and
counts it. User code may wait: if `commit_threshold` of its events are pending, `make_room` waits
for the writer's thread, but not for a disk that does not answer. Every frame contains the number of
events that were dropped so far, by cause.

After `fork`, the child has no writer thread and writes nothing, because the file belongs to the
parent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dasfprof.database.blocks import BlockWriter, Folded, Source
from dasfprof.database.losses import Losses
from dasfprof.database.output import TraceOutput

#: Maximum seconds for which user code waits for a disk that does not answer, and seconds between
#: two checks.
PATIENCE, _CHECK_INTERVAL = 5.0, 0.001

#: CPU seconds of work between two pauses. `benchmarks/` measures the cost of the pauses, and how
#: long an event loop waits.
WORK_SECONDS = 0.0005
#: Maximum number of rows that are written almost without pauses, and CPU seconds between two pauses
#: in that case. So few rows take less than Python's switch interval, after which another thread
#: gets the GIL anyway.
FEW_ROWS, FEW_SECONDS = 100, 0.005
#: Seconds of a pause: normally, and if another thread waits for the work to end.
PAUSE_SECONDS = 0.001
HURRIED_PAUSE_SECONDS = 0.00005


class Pace:
    """Inserts pauses into the work of a thread, so that other threads get the GIL."""

    def __init__(self) -> None:
        #: Whether another thread waits for the work to end.
        self.hurried = False
        #: CPU time of the thread at its last pause, and CPU seconds of work between two pauses.
        self._last_pause, self._seconds = 0.0, WORK_SECONDS

    def start(self, rows: int) -> None:
        """Start to measure the work of this thread. `rows` is the number of rows to write."""
        self._seconds = WORK_SECONDS if rows > FEW_ROWS else FEW_SECONDS
        self._last_pause = time.thread_time()

    def pause(self) -> None:
        """Sleep if the thread has worked long enough since its last pause."""
        if time.thread_time() - self._last_pause > self._seconds:
            time.sleep(HURRIED_PAUSE_SECONDS if self.hurried else PAUSE_SECONDS)
            self._last_pause = time.thread_time()


class Wake:
    """Ends the sleep of one thread, like `threading.Event`, but also from signal handlers."""

    def __init__(self) -> None:
        # `threading.Event.set` holds a lock for a moment. If a signal handler or a finalizer ran in
        # the same thread at that moment and recorded something, it would wait for its own thread
        # forever.
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the current sleep, or the next one."""
        with contextlib.suppress(RuntimeError):  # The object is already set.
            self._unset.release()

    def is_set(self) -> bool:
        """Return whether the next sleep will end at once, because `set` was called."""
        return not self._unset.locked()

    def wait(self, seconds: float = -1) -> None:
        """Sleep until `set` is called, and then clear this object.

        Sleep for at most `seconds`, unless this is negative.
        """
        self._unset.acquire(timeout=seconds)

    def clear(self) -> None:
        """Undo `set`, so that it does not end the next sleep."""
        self._unset.acquire(blocking=False)


__all__ = ["Folded", "Source", "TraceWriter"]


class TraceWriter:
    """Writes the facts of sources to one file. Its methods can be called in any thread.

    Parameters
    ----------
    path
        The path of the file. If another file has this name, a number is added to the name.
    header
        Facts about this process and the run, for the file's first frame.
    commit_threshold, flush_interval
        Number of pending facts of one source, and number of seconds, after which the facts are
        written.
    max_pending
        Maximum number of pending facts of one source. Further facts are dropped and counted.
    segment_size
        Size of a file in bytes after which the next file begins, or 0 for a single file.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        *,
        commit_threshold: int,
        flush_interval: float,
        max_pending: int,
        segment_size: int = 0,
    ) -> None:
        # The parts refer to this writer weakly. So the writer of an ended run is freed at once, and
        # need not wait for the garbage collector.
        this = weakref.proxy(self)
        #: Counts of dropped events by cause, and of errors that hooks caught.
        self.losses = Losses(lambda: this.path)
        self._output = TraceOutput(path, header, self.losses, segment_size)
        #: Paths of the segments. The last segment is being written.
        self.paths = self._output.paths
        pause = partial(TraceWriter._pause, this)
        self._blocks = BlockWriter(self._output, self.losses, pause)
        self.commit_threshold = commit_threshold
        self.max_pending = max_pending
        #: Whether `close` was called. Later events are not written.
        self.closed = False
        self.sources: list[Source] = []
        #: Entries of the closing frame that contain the reason why the run ended, if nobody
        #: requested its end. See FORMAT.md.
        self.ending: dict[str, Any] = {}
        #: Function that is called after facts were written, in the thread that wrote them.
        self.after_drain: Callable[[], object] = lambda: None
        # The platform limits the time for which a thread can wait.
        self._interval = min(flush_interval, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        self._pace = Pace()
        #: Number of steps of work that the writer has done so far.
        self._steps = 0
        #: Value of `_steps` when a thread last stopped waiting for a disk that did not answer.
        self._stuck_at = -1
        #: Identity of the thread that is writing, or None.
        self._drainer: int | None = None
        self._wake = Wake()
        self._asleep = False
        self._start_lock = threading.Lock()
        self._drop_lock = threading.Lock()
        self._drain_lock = threading.RLock()
        self._close_lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._at_exit: weakref.finalize[Any, Any] | None = None

    @property
    def path(self) -> Path:
        """The absolute path of the file. The name has a number if the requested name was in use."""
        return self._output.path

    def add_source(self, source: Source) -> None:
        """Write the facts of a source from now on, and start the background thread if needed.

        If the source was already added, do nothing.
        """
        if source in self.sources:
            return
        with self._start_lock:
            if source not in self.sources:
                self.sources.append(source)
                source.wake_at = self.commit_threshold * source.width
                if self._asleep:
                    self._wake.set()
            if self._thread is None:
                thread = threading.Thread(
                    target=self._work, name=f"dasfprof-writer {self.path.name}", daemon=True
                )
                thread.start()
                # Store the thread only after its start, because another thread may close the writer
                # and join the stored thread.
                self._thread = thread
                # An `atexit` handler would run before Dask's own handlers, which close clusters
                # that a script left open. Events that are recorded while these close are needed.
                self._at_exit = weakref.finalize(self, self.close)

    def start(self, source: Source) -> None:
        """Add a source, and create the file immediately. If that fails, the error is logged."""
        self.add_source(source)
        with self._drain_lock:
            # Thus even a process that dies soon leaves a file. If the file cannot be created, each
            # write tries again.
            self._blocks.append(b"")

    def append(self, source: Source, row: Any) -> None:
        """Append a fact to a source, and wake the writer if enough facts are pending."""
        source.rows.append(row)
        if len(source.rows) >= source.wake_at:
            self.threshold_reached(source)

    def appender(self, source: Source) -> Callable[[Any], None]:
        """Add a source, and return a function that appends a fact to it."""
        self.add_source(source)
        return partial(self.append, source)

    def extender(self, source: Source) -> Callable[[Iterable[Any]], None]:
        """Start a source, and return a function that adds facts to it with ``rows.extend``.

        Each fact must have as many items as the width of the source (see `Source`).
        """
        self.start(source)
        rows, extend, threshold_reached = source.rows, source.rows.extend, self.threshold_reached

        # Recorders call this function for each task run, so it has to be fast.
        def note(fact: Iterable[Any]) -> None:
            extend(fact)
            if len(rows) >= source.wake_at:
                threshold_reached(source)

        return note

    def threshold_reached(self, source: Source) -> None:
        """Wake the writer, or drop the newest fact if more than `max_pending` are pending."""
        if len(source.rows) > self.max_pending * source.width:
            self._drop_newest(source)
        else:
            self.wake()

    def wake(self) -> None:
        """Make the background thread write the pending facts now, without waiting for it."""
        if not self._wake.is_set() and os.getpid() == self._pid:
            self._wake.set()

    def make_room(self, source: Source) -> None:
        """Wait until fewer than `commit_threshold` facts of a source are pending.

        This method does not wait after `close`, in the writer's thread, or while the disk does not
        answer. In the last two cases, it drops the newest fact if more than `max_pending` are
        pending.
        """
        if os.getpid() != self._pid:
            source.rows.clear()
            return
        steps, since = self._steps, time.monotonic()
        while not (self._has_room(source) or self.closed):
            thread = self._thread
            # Write here if the thread could not be started or has ended.
            if thread is None or not thread.is_alive():
                self.commit()
                return
            waits_for_itself = threading.get_ident() in (self._drainer, thread.ident)
            if waits_for_itself or self._steps == self._stuck_at:
                if len(source.rows) > self.max_pending * source.width:
                    self._drop_newest(source)
                break
            if steps != self._steps:
                steps, since = self._steps, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                self._stuck_at = steps
                silent = OSError(errno.ETIMEDOUT, "the disk does not answer")
                self.losses.warn("cannot write facts to", silent)
            self._pace.hurried = True
            self._wake.set()
            time.sleep(_CHECK_INTERVAL)
        if not self._wake.is_set():
            self._wake.set()

    def _drop_newest(self, source: Source) -> None:
        if os.getpid() != self._pid:
            source.rows.clear()
            return
        with self._drop_lock:
            # The writer removes at most `max_pending` facts at a time, so the newest fact is still
            # in the list. Only the last pass of the writer removes all facts.
            if len(source.rows) > self.max_pending * source.width:
                del source.rows[-source.width :]
                # Use half of the limit, because the disk may have answered for a short time.
                since = self._blocks.waits_since
                silent = since is not None and time.monotonic() - since > PATIENCE / 2
                self.losses.add("disk gone" if silent else "too fast")

    def _has_room(self, source: Source) -> bool:
        return source.pending + source.in_flight < self.commit_threshold

    def create(self) -> bool:
        """Create an empty file, unless it was created before or this is a forked child.

        Return whether this call created the file.

        Raises
        ------
        OSError
            If the directory cannot be created or written.
        """
        if self._output.created or os.getpid() != self._pid:
            return False
        with self._drain_lock:
            return self._output.create()

    def commit(self) -> None:
        """Write all facts that were recorded before this call, in the thread of the caller."""
        self._pace.hurried = True
        self._drain()

    def close(self) -> None:
        """Write the pending facts and the closing frame, and end the background thread."""
        if os.getpid() != self._pid:
            return
        with self._close_lock:
            if self.closed:
                return
            self.closed = True
            if self._at_exit is not None:
                self._at_exit.detach()
            self._wake.set()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            for source in self.sources:
                source.wake_at = 0
            self._drain(finish=True)
            if self._output.created:
                self._output.margin = 0  # The next frame is the closing frame.
                end = {"kind": "end", "events": self._output.events, **self.ending}
                self._blocks.append(self._output.frame(end))
            self.sources.clear()
            self.losses.warn_of_all()

    def _work(self) -> None:
        due = time.monotonic() + self._interval
        while not self.closed:
            self._wake.wait(min(max(due - time.monotonic(), 0), self._interval))
            if not any(source.rows for source in self.sources):
                self._sleep()
                due = time.monotonic() + self._interval
                continue
            # Do not wait for the lock without a timeout: a thread that commits may hold the lock,
            # and close the writer before it releases the lock.
            while not (locked := self._drain_lock.acquire(timeout=0.005)) and not self.closed:
                pass
            if locked:
                try:
                    self._drain()
                finally:
                    self._drain_lock.release()
            due = time.monotonic() + self._interval

    def _sleep(self) -> None:
        """Sleep until a fact is recorded, a source is added, or the writer is closed."""
        self._asleep = True
        for source in self.sources:
            # Set this before the lists are checked, because a fact may be added in between.
            source.wake_at = 1
        if not (self.closed or any(source.rows for source in self.sources)):
            self._wake.wait()
        self._asleep = False
        for source in self.sources:
            source.wake_at = self.commit_threshold * source.width
        self._wake.clear()

    def _pause(self) -> None:
        """Count a step of work, and pause if a pause is due, to let other threads run."""
        self._steps += 1
        if not self.closed:
            self._pace.pause()

    def _drain(self, finish: bool = False) -> None:
        # A call in the thread that is already writing comes from a signal handler or a finalizer.
        if os.getpid() != self._pid or self._drainer == threading.get_ident():
            return
        with self._drain_lock:
            self._drainer = threading.get_ident()
            self._pace.start(sum(source.pending for source in self.sources))
            try:
                for source in self.sources:
                    self._drain_source(source, finish)
            finally:
                self._drainer, self._pace.hurried = None, False
            self.after_drain()
            # Losses are logged here, because logging may block a thread that records.
            if self.losses.by_cause:
                self.losses.warn("events come faster than they can be written to")

    def _drain_source(self, source: Source, finish: bool) -> None:
        # Facts above `max_pending` are left in the list, because `threshold_reached` is about to
        # drop them. The last pass writes all facts: several threads may have added facts at the
        # same time, and these would otherwise be neither written nor counted.
        remaining = source.pending if finish else min(source.pending, self.max_pending)
        while remaining or finish:
            rows = source.pop(min(remaining, self.commit_threshold))
            remaining -= source.in_flight
            last = finish and not remaining
            stored = self._output.stored
            try:
                self._blocks.write(source, rows, finish=last)
            except BaseException as error:
                lost = max(source.in_flight - (self._output.stored - stored), 0)
                source.in_flight = 0
                if not isinstance(error, Exception):
                    self.losses.add("interrupted", lost)
                    raise
                self._blocks.failed("recorder failed", lost, error)  # The thread continues.
            source.in_flight = 0
            self._steps += 1
            finish = finish and not last
