"""`TraceWriter`: a background thread that writes pending rows to a trace file.

Threads that record only append to plain lists (`Source.rows`), which is atomic: they take no lock,
encode nothing and open no file. `flush_interval` seconds after the first row, or earlier if a list
is long (`Source.wake_at`), the writer takes the rows, encodes them in slices and appends a frame
for each kind of event and each `commit_threshold` rows. It pauses often (`Pace`), so that an event
loop never waits long for it. While nothing is recorded, it sleeps. If rows come faster than they
are written, the result depends on the recorder. Hooks on Dask's event loops must not wait:
`threshold_reached` drops the newest fact above `max_pending` and counts it. User code may wait: if
`commit_threshold` of its events are pending, `make_room` waits for the writer's thread, but not for
a disk that does not answer. Every frame contains the number of facts dropped so far, by cause.
After `fork`, the child has no writer thread and writes nothing, because the file belongs to its
parent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dasfprof.database.block_writer import BlockWriter, Folded, Source
from dasfprof.database.losses import Losses
from dasfprof.database.output import IndexedBlock, TraceOutput

#: Seconds for which user code waits for a disk that does not answer, and seconds between checks.
PATIENCE, _CHECK_INTERVAL = 5.0, 0.001

# --- Pace and Wake: control of a background thread next to threads that must not wait -------------

#: CPU seconds of work between two pauses, and seconds of a pause, also with another thread that
#: waits for the work to end. `benchmarks/` measures their cost and how long an event loop waits.
WORK_SECONDS = 0.0005
#: Maximum number of rows that need no pauses. They take less than Python's switch interval, after
#: which another thread gets the GIL anyway.
FEW_ROWS, FEW_SECONDS = 100, 0.005
PAUSE_SECONDS = 0.001
HURRIED_PAUSE_SECONDS = 0.00005


class Pace:
    """Pauses the thread that works, so that other threads get the GIL."""

    def __init__(self) -> None:
        #: Whether another thread waits for the work to end.
        self.hurried = False
        #: CPU time of the thread at its last pause, and maximum CPU seconds between pauses.
        self._last_pause, self._seconds = 0.0, WORK_SECONDS

    def start(self, rows: int) -> None:
        """Start working on some rows in this thread."""
        self._seconds = WORK_SECONDS if rows > FEW_ROWS else FEW_SECONDS
        self._last_pause = time.thread_time()

    def pause(self) -> None:
        """Sleep if the thread has worked long enough since its last pause."""
        if time.thread_time() - self._last_pause > self._seconds:
            time.sleep(HURRIED_PAUSE_SECONDS if self.hurried else PAUSE_SECONDS)
            self._last_pause = time.thread_time()


class Wake:
    """Ends the sleep of one thread, like `threading.Event`, but can be called from anywhere.

    `threading.Event` holds a lock while it is set. A signal handler or a finalizer that runs just
    then, and records something, would wait for its own thread forever.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the current sleep, or the next one."""
        with contextlib.suppress(RuntimeError):  # It is already set.
            self._unset.release()

    def is_set(self) -> bool:
        """Return whether it is set and no thread has been woken by it."""
        return not self._unset.locked()

    def wait(self, seconds: float = -1) -> None:
        """Sleep until it is set, or for at most this time if it is not negative, and unset it."""
        self._unset.acquire(timeout=seconds)

    def clear(self) -> None:
        """Unset it."""
        self._unset.acquire(blocking=False)


# --- TraceWriter ----------------------------------------------------------------------------------


def comes_from_a_signal(error: BaseException) -> bool:
    """Return whether a signal handler raised an error, and not the interrupted code."""
    if not isinstance(error, Exception):
        return True
    handlers = {
        getattr(signal.getsignal(number), "__code__", 0) for number in range(1, signal.NSIG)
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


__all__ = ["Folded", "Source", "TraceWriter"]


class TraceWriter:
    """Writes the rows of sources to one file. It is safe to use from any thread.

    Parameters
    ----------
    path
        The file. If it exists, it is left alone and a number is added to the name.
    header
        Facts about this process and run for the file's first frame.
    commit_threshold, flush_interval
        Pending rows of one source, and seconds, after which they are written.
    max_pending
        Pending rows of one source beyond which facts are dropped and counted.
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
        #: Dropped facts by cause, and errors that hooks caught.
        self.losses = Losses(lambda: self.path)
        self._header = header
        self._output = TraceOutput(
            path,
            self._header_frame,
            segment_size,
            self._ending_of_segment,
            self.losses.begin_segment,
        )
        #: The segments. The last one is being written.
        self.paths = self._output.paths
        self._blocks = BlockWriter(self._append_frame, self.losses, self._pause)
        self.commit_threshold = commit_threshold
        self.max_pending = max_pending
        #: Whether `close` was called. Later events are not written.
        self.closed = False
        self.sources: list[Source] = []
        #: Entries of the closing frame with the reason of an end that was not requested. See
        #: FORMAT.md.
        self.ending: dict[str, Any] = {}
        #: Called after rows were written, in the thread that wrote them.
        self.after_drain: Callable[[], object] = lambda: None
        # The longest time that the platform can wait for.
        self._interval = min(flush_interval, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        self._pace = Pace()
        #: Number of the writer's steps, now, and when a thread last stopped waiting.
        self._steps = 0
        self._stuck_at = -1
        #: Thread that is writing, if any, and since when it waits for the disk.
        self._drainer: int | None = None
        self._waits_since: float | None = None
        self._wake = Wake()
        self._asleep = False
        self._start_lock = threading.Lock()
        self._drop_lock = threading.Lock()
        self._drain_lock = threading.RLock()
        self._close_lock = threading.RLock()
        self._thread: threading.Thread | None = None
        #: First error that a signal handler raised while rows were written.
        self._interrupt: BaseException | None = None
        self._at_exit: weakref.finalize[Any, Any] | None = None

    @property
    def path(self) -> Path:
        """The absolute path, with a number added to the name if another file had taken it."""
        return self._output.path

    def _header_frame(self, segment: int, about: dict[str, Any]) -> bytes:
        header = {**self._header, "kind": "header"}
        if segment > 1:
            created = {"created": time.time(), "first_created": header.get("created")}
            header |= {**created, "segment": segment, **about}
        return self._blocks.frame(header)

    def _ending_of_segment(self, blocks: list[IndexedBlock], position: int) -> bytes:
        index = self._blocks.frame({"kind": "index", "blocks": [*map(list, blocks)]})
        end = {"kind": "end", "events": self._blocks.events, "continues": True, "index": position}
        return index + self._blocks.frame(end)

    def add_source(self, source: Source) -> None:
        """Write the rows of this source from now on, and start the background thread if needed.

        Idempotent.
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
                # Not before, because another thread may close the writer and join it.
                self._thread = thread
                # `atexit` would run before Dask's own handlers, which close the clusters that a
                # script left open. Events that are recorded while they close are needed.
                self._at_exit = weakref.finalize(self, self.close)

    def start(self, source: Source) -> None:
        """Add a source and create the file, so that a process that dies immediately leaves a file.

        If the file cannot be created, this is logged, and each write tries again.
        """
        self.add_source(source)
        with self._drain_lock:
            self._blocks.append(b"")

    def append(self, source: Source, row: Any) -> None:
        """Append a row to a source, and wake the writer if requested."""
        source.rows.append(row)
        if len(source.rows) >= source.wake_at:
            self.threshold_reached(source)

    def extender(self, source: Source) -> Callable[[Iterable[Any]], None]:
        """Return a function that appends to a source with flat facts. Each task run calls it."""
        rows, extend, threshold_reached = source.rows, source.rows.extend, self.threshold_reached

        def note(fact: Iterable[Any]) -> None:
            extend(fact)
            if len(rows) >= source.wake_at:
                threshold_reached(source)

        return note

    def threshold_reached(self, source: Source) -> None:
        """Wake the writer, and drop the newest fact if the writer is too far behind."""
        if len(source.rows) > self.max_pending * source.width:
            self._drop_newest(source)
        else:
            self.wake()

    def wake(self) -> None:
        """Let the background thread write what is pending now. Does not wait for it."""
        if not self._wake.is_set() and os.getpid() == self._pid:
            self._wake.set()

    def make_room(self, source: Source) -> None:
        """Wait until fewer than `commit_threshold` facts of this source are pending.

        It does not wait in the writer's thread, after `close`, and while the disk does not answer.
        In these cases, facts above `max_pending` are dropped. If there is no writer thread, it
        writes the facts itself.
        """
        if os.getpid() != self._pid:
            source.rows.clear()
            return
        steps, since = self._steps, time.monotonic()
        while not (self._has_room(source) or self.closed):
            thread = self._thread
            # The thread could not be started, or has ended.
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
            # The writer takes at most `max_pending` facts at a time, so at least one remains. Only
            # its last pass takes all.
            if len(source.rows) > self.max_pending * source.width:
                del source.rows[-source.width :]
                # The disk may have answered shortly after this thread began to wait.
                since = self._waits_since
                silent = since is not None and time.monotonic() - since > PATIENCE / 2
                self.losses.add("disk gone" if silent else "too fast")

    def _has_room(self, source: Source) -> bool:
        return source.pending + source.in_flight < self.commit_threshold

    def withdraw(self, source: Source, row: Any) -> bool:
        """Remove a row that was appended after closing, and return whether it still existed."""
        with self._drain_lock:
            return source.withdraw(row)

    def create(self) -> bool:
        """Create the file, empty, except in a forked child. Return whether it was created.

        Raises
        ------
        OSError
            If the directory cannot be made or written.
        """
        if self._output.created or os.getpid() != self._pid:
            return False
        with self._drain_lock:
            return self._output.create()

    def commit(self) -> None:
        """Write everything that was recorded before the call, in the caller's thread."""
        self._pace.hurried = True
        self._drain()
        self._raise_interrupt()

    def close(self) -> None:
        """Write pending rows and the closing frame, and end the background thread."""
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
                self._output.release_margin()
                end = {"kind": "end", "events": self._blocks.events, **self.ending}
                self._blocks.append(self._blocks.frame(end))
            self.losses.warn_of_all()
        self._raise_interrupt()

    def _raise_interrupt(self) -> None:
        """Raise what a signal handler raised meanwhile, as Python runs it in the main thread."""
        if threading.current_thread() is threading.main_thread():
            error, self._interrupt = self._interrupt, None
            if error is not None:
                raise error

    def _work(self) -> None:
        due = time.monotonic() + self._interval
        while not self.closed:
            self._wake.wait(min(max(due - time.monotonic(), 0), self._interval))
            if not any(source.rows for source in self.sources):
                self._sleep()
                due = time.monotonic() + self._interval
                continue
            # A thread that commits may hold the lock, and close before it releases the lock.
            while not (locked := self._drain_lock.acquire(timeout=0.005)) and not self.closed:
                pass
            if locked:
                try:
                    self._drain()
                finally:
                    self._drain_lock.release()
            due = time.monotonic() + self._interval

    def _sleep(self) -> None:
        """Sleep until there is a row, a new source, or the end."""
        self._asleep = True
        for source in self.sources:
            source.wake_at = 1  # Before the rows are checked, because one may be added in between.
        if not (self.closed or any(source.rows for source in self.sources)):
            self._wake.wait()
        self._asleep = False
        for source in self.sources:
            source.wake_at = self.commit_threshold * source.width
        self._wake.clear()

    def _append_frame(self, frame: bytes) -> None:
        self._waits_since = time.monotonic()
        try:
            self._output.append(frame)
        finally:
            self._waits_since = None

    def _pause(self) -> None:
        """Count a step, and pause if it is time, to let other threads run."""
        self._steps += 1
        if not self.closed:
            try:
                self._pace.pause()
            # No pause is worth losing the rows that are being written.
            except BaseException as error:
                if comes_from_a_signal(error):
                    self._interrupt = error

    def _drain(self, finish: bool = False) -> None:
        # A nested call: a signal handler or a finalizer commits.
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
            if self.losses.by_cause:  # Here, because logging may block a thread that records.
                self.losses.warn("events come faster than they can be written to")

    def _drain_source(self, source: Source, finish: bool) -> None:
        # Further rows are those that `threshold_reached` is about to drop. The last pass leaves
        # none: several threads that found room at the same time may have added more, which would
        # otherwise not be counted.
        remaining = source.pending if finish else min(source.pending, self.max_pending)
        while remaining or finish:
            rows = source.pop(min(remaining, self.commit_threshold))
            remaining -= source.in_flight
            last = finish and not remaining
            stored = self._blocks.stored
            try:
                self._blocks.write(source, rows, finish=last)
            except BaseException as error:
                lost = max(source.in_flight - (self._blocks.stored - stored), 0)
                source.in_flight = 0
                if not isinstance(error, Exception):
                    self.losses.add("interrupted", lost)
                    raise
                self._blocks.failed("recorder failed", lost, error)  # The thread continues.
            source.in_flight = 0
            self._steps += 1
            finish = finish and not last
