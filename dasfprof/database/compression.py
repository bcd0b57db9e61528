"""Compression of frame payloads with zlib.

See FORMAT.md. A process that runs few tasks per second writes blocks with few rows. Most bytes of
such blocks are the same in every block: names and forms of columns, and Dask's terms. The
dictionary for zlib contains these bytes. The dictionary is part of the format, so each block can be
read separately. zlib releases the GIL, so event loops do not wait for the compression.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from dasfprof.database.frames import MAX_PAYLOAD_BYTES

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
