"""Writing a trace file: one background thread that turns pending rows into blocks.

Recording threads only append to plain lists (`Source.rows`), which the interpreter makes atomic;
no lock, no encoding and no file is ever on their path. The writer takes what is there every
`flush_interval` seconds, or sooner when a list reaches `commit_threshold`, encodes it in slices
and appends one frame for each kind of event. After each half millisecond of work it sleeps for one,
so that an event loop that shares the interpreter never waits long for it.

What could not be written is dropped and counted, and the count stands in every later frame.

A forked child inherits all of this but the thread. It writes nothing: the file is its parent's.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.batch import BatchEncoder, Rows
from dasfprof.database.deflate import deflate
from dasfprof.database.output import TraceOutput
from dasfprof.schema.declaration import Schema

logger = logging.getLogger(__name__)

#: Rows encoded at a time, CPU seconds of work between two pauses, and the pause: see `benchmarks/`
#: for what they cost and how long they keep an event loop waiting.
SLICE_ROWS = 250
WORK_SECONDS = 0.0005
PAUSE_SECONDS = 0.001

#: What a fold gives: rows of a schema, with their positions among all rows that it gives.
Folded = Iterable[tuple[Schema, Rows, Sequence[int]]]


class Source:
    """A list that one kind of fact is appended to, and how its rows become events.

    Parameters
    ----------
    fold
        Called in the writer's thread with consecutive slices of `rows`; gives rows of schemas.
    constants
        Fields that are the same in every event of this source.
    finish
        Called once when the file is closed: the rows of what is still unfinished.
    width
        Items of `rows` that make one fact. With more than one, facts lie flat in it, one after the
        other: `rows.extend(fact)` keeps no tuple. Of objects that the garbage collector has to
        follow, those that are kept bring on its next run, and a full run takes tens to hundreds of
        milliseconds where much is recorded.
    """

    def __init__(
        self,
        fold: Callable[[list[Any]], Folded],
        constants: dict[str, Any] | None = None,
        finish: Callable[[], Folded] = tuple,
        width: int = 1,
    ) -> None:
        #: Append here, from any thread, or extend by whole facts.
        self.rows: list[Any] = []
        self.width = width
        self.fold = fold
        self.constants = constants
        self.finish = finish

    @classmethod
    def of(cls, schema: Schema, constants: dict[str, Any] | None = None) -> Source:
        """Make a source whose rows are already those of one schema."""
        return cls(lambda rows: [(schema, rows, range(len(rows)))], constants)


class TraceWriter:
    """Drains sources into one file. Safe to use from any thread.

    Parameters
    ----------
    path
        Where to write. An existing file is never touched: a number is put behind the name.
    header
        Facts about this process and run for the file's first frame.
    commit_threshold, flush_interval
        Pending rows of one source, and seconds, after which they are written.
    max_pending
        Pending rows of one source beyond which facts are dropped and counted.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        *,
        commit_threshold: int,
        flush_interval: float,
        max_pending: int,
    ) -> None:
        self._output = TraceOutput(path, lambda: self._frame({**header, "kind": "header"}))
        self.commit_threshold = commit_threshold
        self.max_pending = max_pending
        #: Facts lost because the disk was full or too slow, and errors that hooks caught.
        self.dropped = 0
        self.errors = 0
        #: Whether `close` was called: what is recorded from then on is not written.
        self.closed = False
        self.sources: list[Source] = []
        # Beyond what the platform can wait for, a flush interval is no interval.
        self._interval = min(flush_interval, threading.TIMEOUT_MAX)
        self._warned = False
        self._events = 0
        self._pid = os.getpid()
        self._rested = 0.0
        self._wake = threading.Event()
        self._start_lock = threading.Lock()
        self._drop_lock = threading.Lock()
        self._drain_lock = threading.RLock()
        self._close_lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._at_exit: weakref.finalize[Any, Any] | None = None

    @property
    def path(self) -> Path:
        """The file, absolute; its name gets a number where another file has taken it."""
        return self._output.path

    def add_source(self, source: Source) -> None:
        """Drain this source from now on; starts the background thread. Twice is once."""
        if source in self.sources:
            return
        with self._start_lock:
            if source not in self.sources:
                self.sources.append(source)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name=f"dasfprof-writer {self.path.name}", daemon=True
                )
                self._thread.start()
                # Not `atexit`, which would come before Dask's own handlers: they close the clusters
                # that a script left open, and what happens meanwhile is to be in the file.
                self._at_exit = weakref.finalize(self, self.close)

    def start(self, source: Source) -> None:
        """Add a source and create the file, so that even a process that dies at once leaves one.

        Where the file cannot be created yet, that is warned of and tried again with each write.
        """
        self.add_source(source)
        self._write(b"", rows=0)

    def threshold_reached(self, source: Source) -> None:
        """Wake the writer; drop the newest fact where the writer is too far behind."""
        most = self.max_pending * source.width
        if len(source.rows) > most:
            with self._drop_lock:
                # The writer takes no more than `most` at a time: one fact at least is left.
                if len(source.rows) > most:
                    del source.rows[-source.width :]
                    self.dropped += 1
        elif not self._wake.is_set() and os.getpid() == self._pid:
            self._wake.set()

    def create(self) -> None:
        """Create the file with its header now.

        Raises
        ------
        OSError
            If the directory cannot be made or written.
        """
        with self._drain_lock:
            self._output.append(b"")

    def commit(self) -> None:
        """Write everything that was recorded before the call, in the caller's thread."""
        self._drain()

    def close(self) -> None:
        """Write what is pending and the closing frame; ends the background thread."""
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
            self._drain(finish=True)
            if self._output.created:
                self._write(self._frame({"kind": "end", "events": self._events}), rows=0)

    def _work(self) -> None:
        while not self.closed:
            self._wake.wait(self._interval)
            self._wake.clear()
            if not self.closed:
                self._drain()

    def _rest(self) -> None:
        """Let other threads run, once this one has worked a while."""
        if not self.closed and time.thread_time() - self._rested > WORK_SECONDS:
            time.sleep(PAUSE_SECONDS)
            self._rested = time.thread_time()

    def _drain(self, finish: bool = False) -> None:
        if os.getpid() != self._pid:
            return
        with self._drain_lock:
            self._rested = time.thread_time()
            for source in self.sources:
                # Rows beyond are those that `threshold_reached` is about to drop.
                count = min(len(source.rows) // source.width, self.max_pending)
                rows = source.rows[: count * source.width]
                del source.rows[: count * source.width]
                try:
                    self._write_rows(source, rows, finish)
                except Exception as error:  # whatever it is, the thread goes on
                    self._could_not_encode(count, error)
            if self.dropped:  # here, since warning may block what records
                self._warn("facts for the trace %s come faster than they are written", self.path)

    def _write_rows(self, source: Source, rows: list[Any], finish: bool) -> None:
        encoders: dict[Schema, BatchEncoder] = {}
        step = SLICE_ROWS * source.width
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            self._encode(partial(source.fold, part), len(part) // source.width, source, encoders)
            self._rest()
        if finish:
            self._encode(source.finish, 0, source, encoders)
        for encoder in encoders.values():
            if not encoder.rows:
                continue
            try:
                payload = encoder.payload(self._rest, **self._about())
                frame = frames.build_frame(deflate(payload))
            except Exception as error:
                self._could_not_encode(encoder.rows, error)
            else:
                self._write(frame, encoder.rows)

    def _encode(
        self,
        fold: Callable[[], Folded],
        count: int,
        source: Source,
        encoders: dict[Schema, BatchEncoder],
    ) -> None:
        """Fold and encode; a fact that cannot be must not end the thread, nor reach the user."""
        try:
            folded = [(schema, rows, positions) for schema, rows, positions in fold() if rows]
        except Exception as error:
            self._could_not_encode(count, error)
            return
        first = self._events
        for schema, rows, positions in folded:
            if schema not in encoders:
                encoders[schema] = BatchEncoder(schema, source.constants)
            sequence = [first + position for position in positions]
            for reason in encoders[schema].extend(rows, sequence):
                self._could_not_encode(1, reason)
            self._events += len(rows)

    def _could_not_encode(self, count: int, error: Exception) -> None:
        self.dropped += count
        self.errors += 1
        self._warn("cannot encode facts for the trace %s", self.path, error=error)

    def _frame(self, block: dict[str, Any]) -> bytes:
        return frames.build_frame(values.pack({**block, **self._about()}))

    def _about(self) -> dict[str, Any]:
        """Give what every frame tells of the clock and of losses so far."""
        clock = [time.time(), time.monotonic()]
        return {"clock": clock, "dropped": self.dropped, "errors": self.errors}

    def _write(self, frame: bytes, rows: int) -> None:
        """Append a frame; on failure count its rows as dropped and go on."""
        try:
            with self._drain_lock:
                self._output.append(frame)
        except Exception as error:
            self.dropped += rows
            self._warn("cannot write facts to the trace %s (%s)", self.path, error)

    def _warn(self, message: str, *args: Any, error: Exception | None = None) -> None:
        if not self._warned:
            self._warned = True
            message += "; some are dropped, and the trace tells how many"
            logger.warning(message, *args, exc_info=error)
