"""`TraceWriter`: a background thread that writes pending rows to a trace file.

Threads that record only append to plain lists (`Source.rows`), which is atomic: they take no lock,
encode nothing and open no file. `flush_interval` seconds after the first row, or sooner when a list
is long (`Source.wake_at`), the writer takes the rows, encodes them in slices and appends a frame
for each kind of event and each `commit_threshold` rows. It pauses often (`Pace`), so that an event
loop never waits long for it. While nothing is recorded it sleeps.

When rows come faster than they are written, it depends on who records. Hooks on Dask's event loops
must not wait: `threshold_reached` drops the newest fact beyond `max_pending` and counts it. User
code may wait: when `commit_threshold` of its events are pending, `make_room` waits for the writer's
thread, but not for a disk that does not answer.
Every frame holds the number of facts dropped so far, by cause.

After `fork` the child has no writer's thread and writes nothing: the file is its parent's.
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

#: Seconds for which user code waits for a disk that does not answer, and between two looks.
PATIENCE, _LOOK = 5.0, 0.001

# --- Pace and Wake: when a background thread works beside threads that must not wait --------------

#: CPU seconds of work between two pauses, and the length of a pause, also when another thread waits
#: for the work to end. `benchmarks/` measures their cost and how long an event loop waits.
WORK_SECONDS = 0.0005
#: So few rows take less than the interpreter's switch interval, after which another thread gets its
#: lock anyway: pauses would only make this one wake again and again.
FEW_ROWS, FEW_SECONDS = 100, 0.005
PAUSE_SECONDS = 0.001
HURRIED_PAUSE_SECONDS = 0.00005


class Pace:
    """Pauses the thread that works, so that the others get the interpreter's lock."""

    def __init__(self) -> None:
        #: Whether another thread waits for the work to end.
        self.hurried = False
        self._rested = 0.0
        self._seconds = WORK_SECONDS

    def start(self, rows: int) -> None:
        """Begin to work on some rows, in this thread."""
        self._seconds = WORK_SECONDS if rows > FEW_ROWS else FEW_SECONDS
        self._rested = time.thread_time()

    def pause(self) -> None:
        """Sleep, if the thread has worked for long enough since its last pause."""
        if time.thread_time() - self._rested > self._seconds:
            time.sleep(HURRIED_PAUSE_SECONDS if self.hurried else PAUSE_SECONDS)
            self._rested = time.thread_time()


class Wake:
    """Ends the sleep of one thread, like `threading.Event`, but from anywhere.

    That one holds a lock while it is set: a signal's handler or a finalizer that comes just then,
    and records something, would wait for its own thread for ever.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the sleep, or the next one."""
        with contextlib.suppress(RuntimeError):  # it is set
            self._unset.release()

    def is_set(self) -> bool:
        """Return whether it is set, and nobody has woken of it."""
        return not self._unset.locked()

    def wait(self, seconds: float = -1) -> None:
        """Sleep until it is set, but only so long if that is not negative; then it is not set."""
        self._unset.acquire(timeout=seconds)

    def clear(self) -> None:
        """Have it not set."""
        self._unset.acquire(blocking=False)


# --- TraceWriter ----------------------------------------------------------------------------------


def comes_from_a_signal(error: BaseException) -> bool:
    """Return whether a signal's handler raised an error, and not what it interrupted."""
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
    """Drains sources into one file. Safe to use from any thread.

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
        Bytes of a file after which another begins; 0: never.
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
        #: Dropped facts by cause, and the errors that hooks caught.
        self.losses = Losses(lambda: self.path)
        self._header = header
        self._output = TraceOutput(
            path,
            self._header_frame,
            segment_size,
            self._ending_of_segment,
            self.losses.begin_segment,
        )
        self._blocks = BlockWriter(self._put, self.losses, self._rest)
        self.commit_threshold = commit_threshold
        self.max_pending = max_pending
        #: Whether `close` was called: what is recorded afterwards is not written.
        self.closed = False
        self.sources: list[Source] = []
        #: Entries of the closing frame that say why recording ended by itself, see FORMAT.md.
        self.ending: dict[str, Any] = {}
        #: Called when rows were written, in the thread that wrote them.
        self.after_drain: Callable[[], object] = lambda: None
        # The longest time that the platform can wait for.
        self._interval = min(flush_interval, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        self._pace = Pace()
        #: Number of the writer's steps, now and when a thread last gave up waiting.
        self._steps = 0
        self._stuck_at = -1
        #: The thread that drains, if any, and since when it waits for the disk.
        self._drainer: int | None = None
        self._asked: float | None = None
        self._wake = Wake()
        self._asleep = False
        self._start_lock = threading.Lock()
        self._drop_lock = threading.Lock()
        self._drain_lock = threading.RLock()
        self._close_lock = threading.RLock()
        self._thread: threading.Thread | None = None
        #: What a signal's handler raised while rows were written, which came first.
        self._interrupt: BaseException | None = None
        self._at_exit: weakref.finalize[Any, Any] | None = None

    @property
    def path(self) -> Path:
        """The absolute path, with a number added to the name if another file had taken it."""
        return self._output.path

    @property
    def paths(self) -> list[Path]:
        """The segments, the one that is being written last."""
        return self._output.paths

    def _header_frame(self, segment: int, about: dict[str, Any]) -> bytes:
        header = {**self._header, "kind": "header"}
        if segment > 1:
            begun = {"created": time.time(), "first_created": header.get("created")}
            header |= {**begun, "segment": segment, **about}
        return self._blocks.frame(header)

    def _ending_of_segment(self, blocks: list[IndexedBlock], place: int) -> bytes:
        index = self._blocks.frame({"kind": "index", "blocks": [*map(list, blocks)]})
        end = {"kind": "end", "events": self._blocks.events, "continues": True, "index": place}
        return index + self._blocks.frame(end)

    def add_source(self, source: Source) -> None:
        """Drain this source from now on; start the background thread if needed. Idempotent."""
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
                self._thread = thread  # not before: another thread may close, and join it
                # `atexit` would run before Dask's own handlers, which close the clusters that a
                # script left open; what happens while they close is recorded, too.
                self._at_exit = weakref.finalize(self, self.close)

    def start(self, source: Source) -> None:
        """Add a source and create the file, so that a process that dies at once leaves a file.

        If the file cannot be created, this is logged, and each write tries again.
        """
        self.add_source(source)
        with self._drain_lock:
            self._blocks.append(b"")

    def append(self, source: Source, row: Any) -> None:
        """Append a row to a source; wake the writer if it asked for that."""
        source.rows.append(row)
        if len(source.rows) >= source.wake_at:
            self.threshold_reached(source)

    def extender(self, source: Source) -> Callable[[Iterable[Any]], None]:
        """Return what appends to a source that stores facts flat; each task run passes there."""
        rows, extend, threshold_reached = source.rows, source.rows.extend, self.threshold_reached

        def note(fact: Iterable[Any]) -> None:
            extend(fact)
            if len(rows) >= source.wake_at:
                threshold_reached(source)

        return note

    def threshold_reached(self, source: Source) -> None:
        """Wake the writer; drop the newest fact if the writer is too far behind."""
        if len(source.rows) > self.max_pending * source.width:
            self._drop_newest(source)
        elif not self._wake.is_set() and os.getpid() == self._pid:
            self._wake.set()

    def make_room(self, source: Source) -> None:
        """Wait until fewer than `commit_threshold` of this source's facts are pending.

        Does not wait in the thread that writes, after `close`, and while the disk does not answer:
        then facts beyond `max_pending` are dropped. Writes them itself where no thread does.
        """
        if os.getpid() != self._pid:
            source.rows.clear()
            return
        steps, since = self._steps, time.monotonic()
        while not (self._has_room(source) or self.closed):
            thread = self._thread
            if thread is None or not thread.is_alive():  # it could not be started, or was ended
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
            time.sleep(_LOOK)
        if not self._wake.is_set():
            self._wake.set()

    def _drop_newest(self, source: Source) -> None:
        if os.getpid() != self._pid:
            source.rows.clear()
            return
        with self._drop_lock:
            # The writer takes at most `max_pending` facts at a time, so at least one is left: only
            # its last drain takes all.
            if len(source.rows) > self.max_pending * source.width:
                del source.rows[-source.width :]
                # The disk may have answered a little after this thread began to wait.
                asked = self._asked
                silent = asked is not None and time.monotonic() - asked > PATIENCE / 2
                self.losses.add("disk gone" if silent else "too fast")

    def _has_room(self, source: Source) -> bool:
        return source.pending + source.in_flight < self.commit_threshold

    def withdraw(self, source: Source, row: Any) -> bool:
        """Remove a row that was appended after closing; return whether it was still there."""
        with self._drain_lock:
            return source.withdraw(row)

    def create(self) -> bool:
        """Create the file, empty; do nothing in a forked child. Return whether it was created.

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
        """Write what is pending and the closing frame; end the background thread."""
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
        """Raise what a signal's handler raised meanwhile: Python runs it in the main thread."""
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
            # A thread that commits may hold the lock, and close before it releases that.
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
            source.wake_at = 1  # before the look at rows, or one may come in between
        if not (self.closed or any(source.rows for source in self.sources)):
            self._wake.wait()
        self._asleep = False
        for source in self.sources:
            source.wake_at = self.commit_threshold * source.width
        self._wake.clear()

    def _put(self, frame: bytes) -> None:
        self._asked = time.monotonic()
        try:
            self._output.append(frame)
        finally:
            self._asked = None

    def _rest(self) -> None:
        """Count a step, and let other threads run."""
        self._steps += 1
        if not self.closed:
            try:
                self._pace.pause()
            except BaseException as error:  # no pause is worth the rows that are being written
                if comes_from_a_signal(error):
                    self._interrupt = error

    def _drain(self, finish: bool = False) -> None:
        # The second: a signal's handler or a finalizer commits.
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
            if self.losses.by_cause:  # here, as logging may block a thread that records
                self.losses.warn("facts come faster than they are written to")

    def _drain_source(self, source: Source, finish: bool) -> None:
        # Rows beyond are those that `threshold_reached` is about to drop. The last drain leaves
        # none: threads that found room together may have added more, and nobody would count these.
        remaining = source.pending if finish else min(source.pending, self.max_pending)
        while remaining or finish:
            rows = source.take(min(remaining, self.commit_threshold))
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
                self._blocks.failed("recorder failed", lost, error)  # the thread goes on
            source.in_flight = 0
            self._steps += 1
            finish = finish and not last
