"""Writing a trace file: one background thread that turns pending rows into blocks.

Recording threads only append to plain lists (`Source.rows`), which the interpreter makes atomic;
no lock, no encoding and no file is ever on their path. The writer takes what is there every
`flush_interval` seconds, or sooner when a list reaches `commit_threshold`, encodes it in slices
and appends one frame for each kind of event. Between two slices it sleeps for a millisecond, so
that an event loop that shares the interpreter never waits long for it.

The file is opened for each append and closed again: no descriptor is held, a directory that was
removed is made again, and space that returns is used.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.batch import BatchEncoder, Schema

logger = logging.getLogger(__name__)

#: Rows encoded between two pauses, and the pause: see `benchmarks/` for what the pair costs and
#: how long it keeps an event loop waiting.
SLICE_ROWS = 250
PAUSE_SECONDS = 0.001

#: What a fold gives: rows of a schema, with their positions among all rows that it gives.
Folded = Iterable[tuple[Schema, Sequence[tuple[Any, ...]], Sequence[int]]]


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
    """

    def __init__(
        self,
        fold: Callable[[list[Any]], Folded],
        constants: dict[str, Any] | None = None,
        finish: Callable[[], Folded] = tuple,
    ) -> None:
        #: Append here, from any thread.
        self.rows: list[Any] = []
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
        self.path = path
        self.commit_threshold = commit_threshold
        self.max_pending = max_pending
        #: Facts lost because the disk was full or too slow, and errors that hooks caught.
        self.dropped = 0
        self.errors = 0
        self.sources: list[Source] = []
        self._header = header
        self._interval = flush_interval
        self._created = False
        self._closed = False
        self._warned = False
        self._events = 0
        self._pid = os.getpid()
        self._wake = threading.Event()
        self._drain_lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def add_source(self, source: Source) -> None:
        """Drain this source from now on; starts the background thread."""
        self.sources.append(source)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"dasfprof-writer {self.path.name}", daemon=True
            )
            self._thread.start()
            atexit.register(self.close)

    def start(self, source: Source) -> None:
        """Add a source and create the file, so that even a process that dies at once leaves one.

        Where the file cannot be created yet, that is warned of and tried again with each write.
        """
        self.add_source(source)
        self._write(b"", rows=0)

    def threshold_reached(self, source: Source) -> None:
        """Wake the writer; drop the newest fact where the writer is too far behind."""
        if len(source.rows) > self.max_pending:
            source.rows.pop()
            self.dropped += 1
        elif not self._wake.is_set():
            self._wake.set()

    def create(self) -> None:
        """Create the file with its header now.

        Raises
        ------
        OSError
            If the directory cannot be made or written.
        """
        with self._drain_lock:
            if not self._created:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path = _create_exclusively(self.path)
                self._created = True
                self._append(b"")

    def commit(self) -> None:
        """Write everything that was recorded before the call, in the caller's thread."""
        self._drain(pause=0.0)

    def close(self) -> None:
        """Write what is pending and the closing frame; ends the background thread."""
        if self._closed or os.getpid() != self._pid:  # a forked child shares the file, not the job
            return
        self._closed = True
        atexit.unregister(self.close)
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._drain(pause=0.0, finish=True)
        if self._created:
            self._write(self._frame(kind="end", events=self._events), rows=0)

    def _work(self) -> None:
        while not self._closed:
            self._wake.wait(self._interval)
            self._wake.clear()
            if not self._closed:
                self._drain(pause=PAUSE_SECONDS)

    def _drain(self, pause: float, finish: bool = False) -> None:
        with self._drain_lock:
            for source in self.sources:
                count = len(source.rows)
                rows = source.rows[:count]
                del source.rows[:count]
                try:
                    self._write_rows(source, rows, pause, finish)
                except Exception:
                    # A fact that cannot be encoded must not end the thread, nor reach the user.
                    self.dropped += count
                    self.errors += 1
                    self._warn("could not encode %d facts for %s", count, self.path)

    def _write_rows(self, source: Source, rows: list[Any], pause: float, finish: bool) -> None:
        encoders: dict[Schema, BatchEncoder] = {}
        for start in range(0, len(rows), SLICE_ROWS):
            self._encode(source.fold(rows[start : start + SLICE_ROWS]), source, encoders)
            if pause and not self._closed:
                time.sleep(pause)
        if finish:
            self._encode(source.finish(), source, encoders)
        for encoder in encoders.values():
            payload = encoder.payload(
                clock=[time.time(), time.monotonic()],
                dropped=self.dropped,
                errors=self.errors,
            )
            self._write(frames.build_frame(payload), encoder.rows)

    def _encode(self, folded: Folded, source: Source, encoders: dict[Schema, BatchEncoder]) -> None:
        first = self._events
        for schema, rows, positions in folded:
            if rows:
                if schema not in encoders:
                    encoders[schema] = BatchEncoder(schema, source.constants)
                encoders[schema].extend(rows, [first + position for position in positions])
                self._events += len(rows)

    def _frame(self, **block: Any) -> bytes:
        clock = [time.time(), time.monotonic()]
        block |= {"clock": clock, "dropped": self.dropped, "errors": self.errors}
        return frames.build_frame(values.pack(block))

    def _write(self, frame: bytes, rows: int) -> None:
        """Append a frame; on failure count its rows as dropped and go on."""
        try:
            self.create()
            self._append(frame)
        except OSError as error:
            self.dropped += rows
            self._warn("cannot write the trace %s: %s; facts are dropped", self.path, error)

    def _append(self, frame: bytes) -> None:
        try:
            file = self.path.open("ab", buffering=0)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab", buffering=0)
        with file:
            if file.tell() == 0:  # new, or made again after somebody removed it
                frame = self._frame(kind="header", **self._header) + frame
            view = memoryview(frame)
            while view:
                view = view[file.write(view) :]

    def _warn(self, message: str, *args: Any) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(message, *args, exc_info=True)


def _create_exclusively(path: Path) -> Path:
    """Create a new empty file; where the name is taken, put the next free number behind it."""
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        else:
            return candidate
