"""Frames: self-delimiting, checksummed pieces of a trace file.

A frame is a 20-byte head (marker, payload length, CRC-32 of the payload, CRC-32 of the head so
far) and its payload. The reader needs no trailer and no index: it walks from head to head, and
where a head or a payload is damaged it searches for the next marker. It trusts a length only if
the head's own checksum matches and the file is long enough, so damage costs no memory.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field

#: 0xC1 is the only byte that msgpack never writes.
MARKER = b"\xc1dasfpf\n"

_HEAD = struct.Struct("<8sII")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size
#: Maximum length of a payload that msgpack libraries can read.
MAX_PAYLOAD_BYTES = (1 << 31) - 1

#: Maximum number of checksummed bytes, as a multiple of the file's length.
_CHECKED_TIMES = 4


class EventsFrame(bytes):
    """A frame of events, with its entry in an index."""

    #: Name of its events, and Unix seconds of the first start and the last end.
    about: tuple[str, float, float]
    #: Number of its events.
    rows: int


def build_frame(payload: bytes) -> bytes:
    """Return a payload as a frame that can be appended to a file.

    Raises
    ------
    ValueError
        If the payload is 2 GiB or longer.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a payload of {len(payload)} bytes does not fit a frame")
    head = _HEAD.pack(MARKER, len(payload), zlib.crc32(payload))
    return b"".join((head, _CHECK.pack(zlib.crc32(head)), payload))


@dataclass
class Damage:
    """What a reader left out of a file. All values are zero for an intact file."""

    #: Bytes between intact frames that belong to no frame.
    corrupt_bytes: int = 0
    #: Number of separate ranges of such bytes.
    corrupt_stretches: int = 0
    #: Bytes of an unfinished frame at the end: it is still being written, or its process died.
    cut_bytes: int = 0
    #: Reason for each intact frame whose content could not be decoded.
    unreadable: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.corrupt_bytes or self.cut_bytes or self.unreadable)


def scan_frames(data: bytes | mmap.mmap, damage: Damage) -> Generator[tuple[int, memoryview]]:
    """Yield the position and payload of each intact frame, and count the remainder in `damage`.

    A payload is a view of `data` that is valid until the next frame. Copies would take an eighth of
    the total time of reading.
    """
    position, size = 0, len(data)
    # Frames overlap only if damage removed bytes. Without a limit, many heads in a malicious file
    # that each claim the remainder would cost its length once for each of them.
    allowance = _CHECKED_TIMES * size
    while position < size:
        length = _believed_length(data, position, size)
        if length is not None and position + HEAD_BYTES + length <= size:
            start = position + HEAD_BYTES
            allowance -= length
            with memoryview(data) as view, view[start : start + length] as payload:
                intact = zlib.crc32(payload) == _HEAD.unpack_from(data, position)[2]
                if intact:
                    yield position, payload
            if intact:
                position = start + length
                continue
        following = _next_head(data, position + 1, size) if allowance >= 0 else None
        if following is None:
            if _is_cut_frame(data, position, size):
                damage.cut_bytes += size - position
                return
            following = size
        damage.corrupt_bytes += following - position
        damage.corrupt_stretches += 1
        position = following


def end_of_frames(data: bytes) -> int:
    """Return the end of the last intact frame, or 0 if there is none."""
    end = 0
    for position, payload in scan_frames(data, Damage()):
        end = position + HEAD_BYTES + len(payload)
    return end


def _believed_length(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the length of the payload if the head of the frame is intact, or None."""
    if position + HEAD_BYTES > size:
        return None
    head = data[position : position + _HEAD.size]
    marker, length, _ = _HEAD.unpack(head)
    (check,) = _CHECK.unpack_from(data, position + _HEAD.size)
    return int(length) if marker == MARKER and check == zlib.crc32(head) else None


def _next_head(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the position of the next intact head, even if its payload is damaged."""
    while (position := data.find(MARKER, position)) >= 0:
        if _believed_length(data, position, size) is not None:
            return position
        position += 1
    return None


def _is_cut_frame(data: bytes | mmap.mmap, position: int, size: int) -> bool:
    """Return whether the file ends inside the frame that begins here."""
    if position + HEAD_BYTES > size:
        return MARKER.startswith(data[position : position + len(MARKER)])
    length = _believed_length(data, position, size)
    return length is not None and position + HEAD_BYTES + length > size
