"""Frames: the parts of a trace file. They are self-delimiting and have checksums.

A frame is a 20-byte head, followed by the payload. The head contains a marker, the length of the
payload, the CRC-32 of the payload, and the CRC-32 of the head's other bytes. The reader needs no
trailer and no index: it goes from head to head. If a head or a payload is damaged, the reader
searches for the next marker. The reader trusts a length only if the checksum of the head matches
and the file is long enough. Therefore damage cannot make the reader allocate memory.

Payloads are compressed with zlib. A process that runs few tasks per second writes blocks with few
rows. Most bytes of such blocks are the same in every block: names and forms of columns, and Dask's
terms. The dictionary for zlib contains these bytes. The dictionary is part of the format, so each
block can be read separately. zlib releases the GIL, so event loops do not wait for the compression.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

#: The first bytes of each frame. 0xC1 is the only byte value that msgpack never writes.
MARKER = b"\xc1dasfpf\n"

_HEAD = struct.Struct("<8sII")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size
#: Maximum length of a payload that msgpack libraries can read.
MAX_PAYLOAD_BYTES = (1 << 31) - 1


def build_frame(payload: bytes) -> bytes:
    """Return a frame that contains a payload and can be appended to a file.

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
    """Counts of the parts of a file that a reader skipped. All are zero for an intact file."""

    #: Number of bytes between intact frames that belong to no frame.
    corrupt_bytes: int = 0
    #: Number of bytes of an incomplete frame at the end of the file. The frame is still being
    #: written, or the process died.
    cut_bytes: int = 0
    #: For each intact frame whose content could not be decoded, the reason.
    unreadable: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.corrupt_bytes or self.cut_bytes or self.unreadable)


def scan_frames(data: bytes | mmap.mmap, damage: Damage) -> Generator[tuple[int, memoryview]]:
    """Yield the position and payload of each intact frame, and count skipped bytes in `damage`.

    A payload is a view of `data`. It is valid until the next frame is requested.
    """
    position, size = 0, len(data)
    while position < size:
        length = _believed_length(data, position, size)
        if length is not None and position + HEAD_BYTES + length <= size:
            start = position + HEAD_BYTES
            # Copying the payloads would take an eighth of the total time of reading.
            with memoryview(data) as view, view[start : start + length] as payload:
                intact = zlib.crc32(payload) == _HEAD.unpack_from(data, position)[2]
                if intact:
                    yield position, payload
            if intact:
                position = start + length
                continue
        following = _next_head(data, position + 1, size)
        if following is None:
            if _is_cut_frame(data, position, size):
                damage.cut_bytes += size - position
                return
            following = size
        damage.corrupt_bytes += following - position
        position = following


def end_of_frames(data: bytes) -> int:
    """Return the end position of the last intact frame, or 0 if there is no intact frame."""
    end = 0
    for position, payload in scan_frames(data, Damage()):
        end = position + HEAD_BYTES + len(payload)
    return end


def _believed_length(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the length of a frame's payload, or None if the head at `position` is not intact."""
    if position + HEAD_BYTES > size:
        return None
    head = data[position : position + _HEAD.size]
    marker, length, _ = _HEAD.unpack(head)
    (check,) = _CHECK.unpack_from(data, position + _HEAD.size)
    return int(length) if marker == MARKER and check == zlib.crc32(head) else None


def _next_head(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the position of the next intact head, or None. The payload may be damaged."""
    while (position := data.find(MARKER, position)) >= 0:
        if _believed_length(data, position, size) is not None:
            return position
        position += 1
    return None


def _is_cut_frame(data: bytes | mmap.mmap, position: int, size: int) -> bool:
    """Return whether a frame begins at a position and the file ends inside this frame."""
    if position + HEAD_BYTES > size:
        return MARKER.startswith(data[position : position + len(MARKER)])
    length = _believed_length(data, position, size)
    return length is not None and position + HEAD_BYTES + length > size


#: First two bytes of a compressed payload. msgpack never writes the byte 0xC1. The second byte
#: identifies the dictionary.
_DEFLATED = b"\xc1\x01"
#: Maximum size of a decompressed payload, as a multiple of its compressed length. Therefore the
#: length of a file limits the memory that its blocks need.
MAX_INFLATED_TIMES = 16

_RAW = -zlib.MAX_WBITS
#: Compression levels of zlib for small and for large payloads. For small payloads, level 1 would
#: leave 4 % more bytes. For large payloads, level 6 would take several times as long.
_LEVEL, _LEVEL_OF_LARGE = 6, 1
LARGE_BYTES = 1 << 14


def deflate(payload: bytes) -> bytes:
    """Compress a payload. Return it unchanged if the compressed payload would not be shorter."""
    level = _LEVEL if len(payload) <= LARGE_BYTES else _LEVEL_OF_LARGE
    deflater = zlib.compressobj(level, wbits=_RAW, zdict=DICTIONARY)
    deflated = b"".join((_DEFLATED, deflater.compress(payload), deflater.flush()))
    fits = len(payload) <= MAX_INFLATED_TIMES * len(deflated)
    return deflated if fits and len(deflated) < len(payload) else payload


def inflate(payload: bytes | memoryview) -> bytes | memoryview:
    """Decompress a payload. Return it unchanged if it is not compressed.

    Raises
    ------
    ValueError
        If the payload does not follow FORMAT.md, or is larger after decompression than FORMAT.md
        allows.
    """
    if payload[: len(_DEFLATED)] != _DEFLATED:
        return payload
    inflater = zlib.decompressobj(_RAW, zdict=DICTIONARY)
    limit = min(MAX_PAYLOAD_BYTES, MAX_INFLATED_TIMES * len(payload))
    try:
        plain = inflater.decompress(payload[len(_DEFLATED) :], limit + 1)
    except zlib.error as error:
        raise ValueError(f"a payload that cannot be inflated: {error}") from error
    if len(plain) > limit:
        raise ValueError(f"a payload of {len(payload)} bytes inflates to more than {limit}")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a payload whose deflated part ends before or after its own end")
    return plain


#: Bytes that many blocks contain, collected by `benchmarks/deflate_dictionary.py`.
DICTIONARY = zlib.decompress(Path(__file__).with_name("dictionary.zlib").read_bytes())
