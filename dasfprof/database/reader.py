"""`TraceFile`: reads the header and the events of a trace file, and counts lost events.

A reader never writes to a file and never creates one. It stops at an incomplete last frame, skips
damaged parts, and reports which parts it left out. See `TraceFile.damage` and `TraceFile.end`.
"""

from __future__ import annotations

import mmap
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dasfprof.database import columns, frames, values
from dasfprof.database.blocks import Batch, decode_block
from dasfprof.database.frames import LARGE_BYTES, inflate
from dasfprof.database.runs import missing_file
from dasfprof.errors import DasfprofError, InvalidArgumentError, NotATraceError

#: A time: Unix seconds, a datetime, or a text in ISO 8601. If a time zone is missing, it is UTC.
Time: TypeAlias = float | datetime | str

#: Kinds of events that remain valid after their time, such as events about workers and graphs. They
#: are read for any time range, because they may have been recorded long before it. Their number is
#: small.
LASTING = frozenset(
    (
        *("Step", "Step End", "Step Layer", "Stack", "Graph", "Graph Sent", "Function Code"),
        *("Client", "Client Tasks"),
        *("Function Sent", "Client Calls", "Sent Value", "Line", "Line Layer", "Line Graph"),
        *("GPU Devices", "GPU Failure", "Worker Added", "Worker Removed", "Worker Exit", "Clock"),
        *("Call Profile", "Worker Error", "Cluster Change"),
    )
)


class TimeRange(NamedTuple):
    """A time range in Unix seconds, including both ends.

    All events that overlap it are read, with their full durations.
    """

    begin: float
    end: float

    def overlaps(self, name: str, first: float, last: float) -> bool:
        """Return whether a block has to be read for this time range.

        `name` is the name of the block's events. `first` and `last` are the start of the block's
        first event and the end of its last event.
        """
        return name in LASTING or (first <= self.end and last >= self.begin)

    def part_of(self, batch: Batch) -> Batch:
        """Return a batch with only those events that have to be read for this time range."""
        if "name" not in batch.fields and batch.name in LASTING:
            return batch
        starts = _floats(batch.fields["timestamp"])
        ends = starts
        if "duration" in batch.fields:
            ends = np.fmax(starts, starts + _floats(batch.fields["duration"]))
        rows = np.flatnonzero((starts <= self.end) & (ends >= self.begin))
        return batch if len(rows) == batch.rows else batch.take(rows)


def make_window(between: Sequence[Time] | None) -> TimeRange | None:
    """Return the time range between two times, or None if `between` is None.

    Raises
    ------
    InvalidArgumentError
        If `between` does not contain two times, or if the second time is before the first.
    """
    if between is None or isinstance(between, TimeRange):
        return between
    try:
        begin, end = map(_seconds, between)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"between={between!r}: expected two times, as Unix seconds, datetimes, or texts such "
            f"as '2026-03-01 12:00' (UTC without a time zone): {error}."
        ) from error
    if not begin <= end:
        raise InvalidArgumentError(f"between={between!r}: the second time is before the first.")
    return TimeRange(begin, end)


def _seconds(time: Time) -> float:
    if isinstance(time, str):
        time = datetime.fromisoformat(time.strip().replace("Z", "+00:00"))
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    return float(time)


def _floats(column: columns.Column) -> columns.Array:
    """Return a column as floats, with NaN for values that are not numbers."""
    if isinstance(column, columns.NumberColumn):
        return column.array.astype(float)
    # No time range includes NaN.
    items = column.to_list()
    return np.array([item if type(item) in (int, float) else np.nan for item in items], dtype=float)


FORMAT_VERSION = 3

#: End of the message about a file that is not a trace.
NO_TRACE = (
    "neither a dasfprof nor a DASF trace. A trace is a .msgpack file that a dasfprof or DASF "
    "profiler wrote. `dasfprof info DIRECTORY` lists the traces in a directory."
)

#: Number of bytes of an event's length in DASF's files, and first bytes of msgpack maps. A file of
#: DASF begins with the big-endian length of the first event, followed by a msgpack map.
DASF_LENGTH_BYTES = 8
_MAP_MARKS = (*range(0x80, 0x90), 0xDE, 0xDF)
#: Value of ``cause`` in the closing frames of a run that ended because its client was gone.
CLIENT_GONE = "client gone"
#: Number of bytes to read from the end of a file for its closing frame, which is much shorter.
_END_BYTES = 4096
#: Number of frames at the start of a file from which its inflated length is estimated.
_TYPICAL_FRAMES = 32


@dataclass
class TraceFile:
    """A trace file, opened for reading. Its attributes are set while `batches` is consumed."""

    path: Path
    #: Map of the header, or an empty map if the header is damaged.
    header: dict[str, Any] = field(default_factory=dict)
    #: Map of the closing frame, or None if the file has no closing frame. See
    #: `dasfprof.database.following`.
    end: dict[str, Any] | None = None
    damage: frames.Damage = field(default_factory=frames.Damage)
    #: Number of events that the writer dropped in total (`dropped`) and by cause (`dropped_by`, see
    #: FORMAT.md), and number of errors that its hooks caught (`errors`). Each is the largest count
    #: of any frame. Files of earlier versions have no causes.
    dropped: int = 0
    dropped_by: dict[str, int] = field(default_factory=dict)
    errors: int = 0
    events: int = 0
    #: All headers of the file, each with the number of events before it. There are several headers
    #: if the file was truncated during recording, or if the disk was full while the first header
    #: was written.
    headers: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    #: Time range of the events to read, or None to read all events.
    window: TimeRange | None = None
    #: Byte ranges to read, which contain complete frames, or None to read the complete file.
    byte_ranges: list[tuple[int, int]] | None = None
    #: Byte positions of the start and the end of the last batch's frame.
    frame: tuple[int, int] = (0, 0)

    @property
    def ended_by_itself(self) -> bool:
        """Whether the scheduler ended the run, because the client was gone for too long."""
        return self.end is not None and self.end.get("cause") == CLIENT_GONE

    def batches(self) -> Iterator[Batch]:
        """Yield every intact batch in the order of the file.

        Raises
        ------
        SourceNotFoundError, NotATraceError
            If there is no such file, or if the file contains no frame of this format.
        """
        self.end, self.damage, self.events, self.headers = None, frames.Damage(), 0, []
        for frame, block, size in self._blocks(self.window):
            self.frame = frame
            kind = block.get("kind")
            self.dropped = max(self.dropped, _count(block, "dropped"))
            causes = block.get("dropped_by")
            for cause, count in causes.items() if isinstance(causes, dict) else ():
                if isinstance(cause, str) and type(count) is int and count > 0:
                    self.dropped_by[cause] = max(count, self.dropped_by.get(cause, 0))
            self.errors = max(self.errors, _count(block, "errors"))
            if kind == "header":
                self.header = self.header or block
                self.headers.append((block, self.events))
            elif kind == "end":
                self.end = block
            elif kind == "events":
                try:
                    batch = decode_block(block, size)
                except values.DAMAGE_ERRORS as error:
                    self.damage.unreadable.append(str(error))
                else:
                    if self.window is not None:
                        batch = self.window.part_of(batch)
                    self.events += batch.rows
                    yield batch

    def read_header(self) -> dict[str, Any]:
        """Read the header, and return it. Return an empty map if the header is damaged."""
        for _, block, _ in self._blocks():
            if block.get("kind") == "header":
                self.header = block
            break
        return self.header

    def is_closed(self) -> bool:
        """Return whether the last frame is a closing frame. Only the end of the file is read."""
        with _map(self.path) as data:
            return _last_block(data).get("kind") == "end"

    def _frames(
        self, data: bytes | mmap.mmap, window: TimeRange | None
    ) -> Generator[tuple[int, memoryview | bytes]]:
        needed = self.byte_ranges
        if needed is None and window is not None:
            needed = _needed(data, window)
        if needed is None:
            yield from frames.scan_frames(data, self.damage)
            return
        for begin, end in needed:
            for offset, payload in frames.scan_frames(data[begin:end], self.damage):
                yield begin + offset, payload

    def _blocks(
        self, window: TimeRange | None = None
    ) -> Iterator[tuple[tuple[int, int], dict[str, Any], int]]:
        with _map(self.path) as data, closing(self._frames(data, window)) as frames_of_file:
            has_frames = False
            for position, payload in frames_of_file:
                has_frames, end = True, position + frames.HEAD_BYTES + len(payload)
                try:
                    plain = inflate(payload)
                    block = values.unpack(plain)
                except values.DAMAGE_ERRORS as error:
                    self.damage.unreadable.append(f"frame at byte {position}: {error}")
                    continue
                if isinstance(block, dict):
                    yield (position, end), block, len(plain)
                else:
                    self.damage.unreadable.append(f"frame at byte {position} is not a map")
            if not has_frames and len(data) and not _begins_as_trace(data):
                raise NotATraceError(f"{self.path} is {NO_TRACE}")


def _needed(data: bytes | mmap.mmap, window: TimeRange) -> list[tuple[int, int]] | None:
    """Return the byte ranges to read for a time range, or None if the file has no intact index."""
    index = _last_block(data).get("index")
    if type(index) is not int or not 0 < index < len(data):
        return None
    try:
        for _, payload in frames.scan_frames(data[index:], frames.Damage()):
            blocks = values.unpack(inflate(bytes(payload)))["blocks"]
            break
        begins = [*(int(block[0]) for block in blocks), index]
        needed = [
            (begin, end)
            for (begin, end), block in zip(pairwise(begins), blocks, strict=True)
            if window.overlaps(*block[1:4])
        ]
    except (*values.DAMAGE_ERRORS, UnboundLocalError):
        return None
    return [(0, begins[0]), *needed, (index, len(data))]


def _last_block(data: bytes | mmap.mmap) -> dict[str, Any]:
    """Return the map of the last frame.

    The map is empty if this frame is longer than a closing frame, or if it contains no map.
    """
    payloads = [bytes(p) for _, p in frames.scan_frames(data[-_END_BYTES:], frames.Damage())]
    try:
        block = values.unpack(inflate(payloads[-1]))
    except values.DAMAGE_ERRORS:  # Also an IndexError, if there is no frame.
        block = None
    return block if isinstance(block, dict) else {}


def intact_header(path: Path) -> dict[str, Any] | None:
    """Return the header of a file, or None if the first frame is not an intact header."""
    with suppress(OSError, DasfprofError):
        return TraceFile(path).read_header() or None
    return None


def inflated_bytes(path: Path) -> int:
    """Return the approximate length of a file if its large payloads were not compressed."""
    stored = inflated = 0
    with _map(path) as data, closing(frames.scan_frames(data, frames.Damage())) as all_frames:
        # The first frames are taken as typical of the file.
        for _, payload in islice(all_frames, _TYPICAL_FRAMES):
            try:
                length = len(inflate(payload))
            except values.DAMAGE_ERRORS:
                continue
            stored += len(payload)
            inflated += length if length >= LARGE_BYTES else len(payload)
        return round(len(data) * inflated / stored) if stored else len(data)


def is_trace(path: Path) -> bool:
    """Return whether a file starts like a trace of dasfprof or DASF, or has an intact frame."""
    with _map(path) as data:
        begins_as_trace = bool(data) and _begins_as_trace(data)
    return begins_as_trace or has_frame(path)


def has_frame(path: Path) -> bool:
    """Return whether a file has an intact frame, or is a trace of DASF's profiler."""
    with _map(path) as data:
        frame = next(frames.scan_frames(data, frames.Damage()), None)
    return frame is not None or is_dasf_trace(path)


def is_dasf_trace(path: Path) -> bool:
    """Return whether a file starts like a trace of DASF's profiler."""
    size = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(DASF_LENGTH_BYTES + 1)
    if len(begin) <= DASF_LENGTH_BYTES:
        return False
    length = int.from_bytes(begin[:DASF_LENGTH_BYTES], "big")
    return 0 < length <= size - DASF_LENGTH_BYTES and begin[-1] in _MAP_MARKS


def _begins_as_trace(data: bytes | mmap.mmap) -> bool:
    """Return whether data starts with the marker of a frame, or is a prefix of the marker."""
    return frames.MARKER.startswith(data[: len(frames.MARKER)])


def _count(block: dict[str, Any], name: str) -> int:
    count = block.get(name, 0)
    return count if isinstance(count, int) else 0


@contextmanager
def _map(path: Path) -> Iterator[bytes | mmap.mmap]:
    """Map a file into memory. For an empty file, which cannot be mapped, yield empty bytes."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise missing_file(path) from error
    except ValueError:
        yield b""
        return
    try:
        yield mapped
    finally:
        mapped.close()
