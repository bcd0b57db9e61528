"""Frames: self-delimiting, checksummed pieces of a trace file.

A frame is a 20-byte head (marker, payload length, CRC-32 of the payload, CRC-32 of the head so
far) and its payload. The reader needs no trailer and no index: it walks from head to head, and
where a head or a payload is damaged it searches for the next marker. It trusts a length only if
the head's own checksum matches and the file is long enough, so damage costs no memory.
"""

from __future__ import annotations

import base64
import mmap
import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field

#: 0xC1 is the one byte that msgpack never writes.
MARKER = b"\xc1dasfpf\n"

_HEAD = struct.Struct("<8sII")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size
#: The longest payload that msgpack libraries can read.
MAX_PAYLOAD_BYTES = (1 << 31) - 1

#: Checksummed bytes are limited to this multiple of the file's length.
_CHECKED_TIMES = 4


class EventsFrame(bytes):
    """A frame of events, with what an index says of it."""

    #: Name of its events, and the Unix seconds at which the first begins and the last ends.
    about: tuple[str, float, float]
    #: Number of its events.
    rows: int


def build_frame(payload: bytes) -> bytes:
    """Return a payload as a frame, to append to a file.

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
    """What a reader left out of a file; all zero for a whole file."""

    #: Bytes between intact frames that belong to no frame.
    corrupt_bytes: int = 0
    #: Separate stretches of such bytes.
    corrupt_stretches: int = 0
    #: Bytes of an unfinished frame at the end: the writer still writes it, or died.
    cut_bytes: int = 0
    #: The reason for each intact frame whose content could not be decoded.
    unreadable: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.corrupt_bytes or self.cut_bytes or self.unreadable)


def scan_frames(data: bytes | mmap.mmap, damage: Damage) -> Generator[tuple[int, memoryview]]:
    """Yield the position and payload of each intact frame; count the rest in `damage`.

    A payload is a view of `data`, valid until the next frame: copies would take an eighth of the
    time of all reading.
    """
    position, size = 0, len(data)
    # Frames overlap only where damage removed bytes. Without a bound, many heads that each claim
    # the rest of a malicious file would cost its length once for each of them.
    allowance = _CHECKED_TIMES * size
    while position < size:
        length = _believed_length(data, position, size)
        if length is not None and position + HEAD_BYTES + length <= size:
            start = position + HEAD_BYTES
            allowance -= length
            with memoryview(data) as whole, whole[start : start + length] as payload:
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


def whole_frames(data: bytes) -> int:
    """Return where the last intact frame ends; 0 if there is none."""
    end = 0
    for position, payload in scan_frames(data, Damage()):
        end = position + HEAD_BYTES + len(payload)
    return end


def _believed_length(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the length of the payload if the head of the frame is intact, else None."""
    if position + HEAD_BYTES > size:
        return None
    head = data[position : position + _HEAD.size]
    marker, length, _ = _HEAD.unpack(head)
    (check,) = _CHECK.unpack_from(data, position + _HEAD.size)
    if marker != MARKER or check != zlib.crc32(head):
        return None
    return int(length)


def _next_head(data: bytes | mmap.mmap, position: int, size: int) -> int | None:
    """Return the position of the next intact head, whether or not its payload is intact."""
    while (position := data.find(MARKER, position)) >= 0:
        if _believed_length(data, position, size) is not None:
            return position
        position += 1
    return None


def _is_cut_frame(data: bytes | mmap.mmap, position: int, size: int) -> bool:
    """Return whether the file ends inside the frame that begins here."""
    if position + HEAD_BYTES > size:
        begun = data[position : position + len(MARKER)]
        return MARKER.startswith(begun)
    length = _believed_length(data, position, size)
    return length is not None and position + HEAD_BYTES + length > size


# --- Compression of small blocks with zlib; see FORMAT.md -----------------------------------------
#
# A process that runs few tasks a second writes blocks of few rows. Most of their bytes are the same
# in every block: the names of columns, their forms, Dask's terms. These are in a dictionary that is
# part of the format, so that each block can still be read alone. Large blocks are mostly numbers
# and are not compressed.
#
# zlib releases the interpreter's lock while it works, so no event loop waits for it.

#: First bytes of a deflated payload. msgpack never writes the byte 0xC1; the second byte
#: identifies the dictionary.
_DEFLATED = b"\xc1\x01"
#: The longest payload that is deflated, so that no block takes long.
MAX_PLAIN_BYTES = 1 << 14
#: The most that a payload may inflate to, in bytes and as a multiple of its length: so the length
#: of a file bounds the memory that its blocks take.
MAX_INFLATED_BYTES = 1 << 16
MAX_INFLATED_TIMES = 16

_RAW = -zlib.MAX_WBITS
#: From 1, the fastest, to 9. Level 1 would leave 4 % more bytes.
_LEVEL = 6


def deflate(payload: bytes) -> bytes:
    """Return the payload deflated, or unchanged where that is not shorter."""
    if len(payload) > MAX_PLAIN_BYTES:
        return payload
    deflater = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=DICTIONARY)
    deflated = b"".join((_DEFLATED, deflater.compress(payload), deflater.flush()))
    fits = len(payload) <= MAX_INFLATED_TIMES * len(deflated)
    return deflated if fits and len(deflated) < len(payload) else payload


def inflate(payload: bytes | memoryview) -> bytes | memoryview:
    """Return a payload inflated, or unchanged if it is not deflated.

    Raises
    ------
    ValueError
        If it does not follow FORMAT.md or inflates to more than that allows.
    """
    if payload[: len(_DEFLATED)] != _DEFLATED:
        return payload
    inflater = zlib.decompressobj(_RAW, zdict=DICTIONARY)
    limit = min(MAX_INFLATED_BYTES, MAX_INFLATED_TIMES * len(payload))
    try:
        plain = inflater.decompress(payload[len(_DEFLATED) :], limit + 1)
    except zlib.error as error:
        raise ValueError(f"a payload that cannot be inflated: {error}") from error
    if len(plain) > limit:
        raise ValueError(f"a payload of {len(payload)} bytes inflates to more than {limit}")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a payload whose deflated part ends before or after its own end")
    return plain


#: Bytes that blocks have in common; made by `benchmarks/deflate_dictionary.py`.
DICTIONARY = zlib.decompress(
    base64.b64decode(
        """
eNq9GW1sHEd1z6WiqoSgIlJFW5BLUFQk7PZak4YKNUkTXCG1tCSxklaip8nunG/w3s4ys2v7UKXWtBSVrzqpgvqDH3Fyn/b5
I7HrUlVCFgrQKnWLQOJHBVFJJET4U+hfhODNzH7M7p3P5zspiaLsvDfvzZv3/eYunPSJ7RGHD3+LOvhYycVLESRvU+Q1oyVx
vMVoYRPuVTBj2HorTxxkk+/joYI9Hn6btOj6Hq5JFg/cr/7fO1IBHntHqkVcpKy06PhFtzQcoIKVYyHGUGnFRfDFhw8jD40y
VMSLAeAoZgTzt4KVSRkezgt8vPNNHcfl9oCqzrCNEcdWjfmOQ5zxBjcL2PJtzGrcN03M+aKH+MQQ3IJwwDR910IeHhpnyC38
uDxBHKuKJ7Hj8YpbAEZz3yw7cGJzzOEAHDwGtLzM6BQ3KqZNzYnTl43gT/RRsxh1XWwZVVAeZdyoc/w9HzsmPjPnnCP7jMwl
o5on2Lb4TMMjRcw9VHQFLi9xZcTG+Q/lsa/OWQLujwj4bAU2emmYuA2PGZ+fwKXX5iYAE2/q9qvJQBRGTI9QhyeP2VozlaMe
RvaNUMmL/dytCv6QI5Z23KS4aDGtzQLB+W6vvnScsgnMBo+Ar09i60bo4AfVKXlmUsQqA5+nTrdyNx59cmxwjKNxfCNE/nnZ
94mV0jNIhqdjJm2cfcH3CKQZJJzxzBw9l5fgiyqv5NoiF0IkxL+ESt7NAOpRD9kxuOLSKcxi4jov5qQeYlBImQIveLjoYoY8
n+EYWnNNgnPedBrCNEjDZVSkINx1dC0IU40iYsNZNyTG2hirBt5lQSrtwueqFvZA2G5vt3gYQxTiwcelnm/E/a4YtzUteWgu
lTgXAjCH0hZ7yXyBci+9tSGBqY0W4RPpjUvhUTQnSGJZVpOIgFeIXUthTeo7nsZVyURzapvGNYlIc01hU1ybERouElNd0MEp
jhcTuDQ/pZD0zS/o4DS/BC7Fb2svmj8MZFo+y/TgQqfnzJsC53khdh6AXj74wcau1WvfPjIfxG5OhgdgjNmGVxChEUNO1VR2
HpK+9rOq0nS4fb4obuRSaJBC0EKe2GCnEoeUEsKWQXhkg04ZNj0ICwBmKjJ5CXEeeeK5u/4BVymLJCcBd//muLhbOc8wloD7
nv3u8wCYl7JJLcp7fPnZpti3MMWIhzX4nqc+FvCG3C4MIpnccvPVs4KJ2h2B775+z9los9CTgB54+YvNW7J7rgebI3Dpg7fX
vnbiMx26qqCAHrSsoHwO9GC7V+eQkWk1nsxAWWW/q6MHLj88qxhBrHZjyrhxVP1YqvBmhU+eXvFM96F7783e/+DwffA3+1AL
IFHZJNFsWbh3eHDdUSdzYeaw4NikSIRx3gdxB/79WMHYpkCoNMr78X6jg/df/dPbO/f+nzbRJJQCdBIKtVcKieICIZeVIvLM
Qki/ERYftVJNQowMNKlWi5OEk5MQPIKER7ETQoFUaCSER7sFjwi6ZvoWyoUoFaw8OqFqMTIpDa7W510ivjaLua2tUYZm2O3H
DIe2NsOa97s7ujHDrFT/C+ektO/vPnP4iUv/PTBQdRHDMuL/V4Zs44abOzT2j4qRSF7m5h6Lsp8diItyKjTHRpRz/fP4w32H
pmkTHCfVeCTyszeJ86eQ4+EgAjOy1QNJfNvncpg4lRgBBQf4955xx8YuJeZ7q9f/9iMR7ApjhOrTInprJdaFQwx+w7H6cYqv
dnAK4xf7uneKmaRTdKqpUu7HUAl03KsHQF7+eqaj8deGp3fv0PhtvTtTsYWkajYUuwLL3fmViWeCKRBWnzvz21/Gq0dqr90T
rzKfWNmUTQt2MWQdBzp3yASi4hq9TpztlHtCOYV4RRg84jtStZ/sTbWbAw+Eyn2xvXI/XN6vKbdu+SyYl+SW/S9/56w8rb/g
u2J8NjWWZyM1qBoZhI2sMfEQ7mc3B74kg7Onsho9hUiZgtem2hQiHgwqoisPlfDK709oN6yC+nzZN21UuUdt7IhPwYx5OtW1
v1/SqCDiqaujP3ru6QQ66GLHRjY/tSedcOSsaSJo11S2ST4/JfSkJ521D8/mNO01wCtzW3Jpk7TWPnr6No2+IpNbm3y3tQCv
7D2mMVh0GaHQ3snpmon0E3rpaoQZxw5WPiaamaUITpklJm1x0LvviFELOQ70s+EzkzTh8w08bWJXwKKK2ymCGHJ4vr/k9O7F
bQJo6I9/3iqARtXQt+Ou6KUqpz6LZoJTrf0iBFOQeW7tLqjKQXO+OfCHZFSED541B3tCBuHBoyPBrCteTeUzbgzt0AocEvrt
p4RtZu7sUMT+M/bXnatyZjnKRNC7QQEQ7PZnd0lhOjzaHcHKBNrE2KMDHR3oXN2u0/M7za6JG14xdpcF4615NooUIok6xIyd
8rzp+rFRg9QYBPWnZ1bky5TjF3N5K+iRPi88QkDiSeTWZbE2qeNg9Ros0uRqeAE4IMcxYBUHdexadD06nBglD/xFSfu6tiE5
VR586V9iYDXqau53fXHailxoL3oC+LoODOYLW/DYuKBjwml5Q715gP9HUp10ecwoQChp2mH0i2yst9KEKEUkny9SB60nMImT
1luJQn5vtKFqj0sM+Ru/akMXIYMHINNNG1YhfKsFsR4aJOcysJwvfm2hcrjfeFPXd5fYvG/bsbYIbaVrxYQ0jXGQIjkQLguQ
9hAstklYymkujssLKOdTOAHukCIeRw6kBkt/l+wxRRzbLkWwL/SVIn6iDzvylTNuRuQrHHeJbePIs6CRmMamr7qkqD0RJ5Rk
m5AsIMFvaAuSSU66k175VzR4FMwhcl4hBWsdvByDW0jqNqVuzkaygRvd17mJrh1Svz/2Y53NzIPbtADXfr3YqYd+asbopYdO
Zfnbu++g2zwntWmq23bHLW1q2Su5cSOS/jW2Yulo6JELyE2dnJ6W4gm73WXGRrb/micO2DQXS3qXKGFKf6E6k/WtIW4vu/oY
VmfYxGRS/QgUTUPvHNXMpFw+iZ/QC6sWJtpYsP6xtqcGNRBbKseULergxIiAntS26g2X7vENmarTMbIUQaOwrSt5KNNu3tow
/x/HrRoD
"""
    )
)
