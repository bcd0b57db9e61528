"""Reader of trace files, written from FORMAT.md alone, without imports of dasfprof."""

import base64
import datetime
import re
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

FORMAT = Path(__file__).parents[2] / "dasfprof/database/FORMAT.md"
MARKER = bytes.fromhex("c1 64 61 73 66 70 66 0a")
DICTIONARY = zlib.decompress(
    base64.b64decode(re.findall(r"```base64\n(.*?)```", FORMAT.read_text(), re.DOTALL)[0])
)


@dataclass
class Contents:
    """Contents of a file, and the terms of the format that it uses."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    #: (position, phase, name, fields, args), in order of positions.
    events: list[tuple[int, str, str, dict[str, Any], dict[Any, Any]]] = field(default_factory=list)
    damaged: int = 0
    #: Number of frames with deflated payloads.
    deflated: int = 0
    forms: set[Any] = field(default_factory=set)
    key_kinds: set[int] = field(default_factory=set)
    extensions: set[int] = field(default_factory=set)


def read(data: bytes) -> Contents:
    contents = Contents()
    for payload in _payloads(data):
        plain = inflate(payload)
        contents.deflated += plain is not payload
        block = _unpack(plain, contents)
        contents.frames.append(block)
        if block["kind"] != "events":
            continue
        rows = block["rows"]
        decode = _Decoder(contents)
        positions = decode.column(block["sequence"], rows)
        fields = {name: decode.column(item, rows) for name, item in block["fields"].items()}
        args = {name: decode.column(item, rows) for name, item in block["args"].items()}
        for row in range(rows):
            contents.events.append(
                (
                    positions[row],
                    block["phase"],
                    fields["name"][row] if "name" in fields else block["name"],
                    {name: values[row] for name, values in fields.items() if name != "name"},
                    {name: values[row] for name, values in args.items()},
                )
            )
    contents.events.sort(key=lambda event: event[0])
    return contents


def head_of(length: int, check: int) -> bytes:
    head = MARKER + struct.pack("<II", length, check)
    return head + struct.pack("<I", zlib.crc32(head))


def frame_of(payload: bytes) -> bytes:
    return head_of(len(payload), zlib.crc32(payload)) + payload


def frames_of(data: bytes) -> list[bytes]:
    """Split an intact file."""
    frames = []
    while data:
        length = 20 + struct.unpack_from("<I", data, 8)[0]
        frames.append(data[:length])
        data = data[length:]
    return frames


def _payloads(data: bytes) -> list[bytes]:
    payloads, position = [], 0
    while position < len(data):
        head = data[position : position + 20]
        if len(head) == 20 and head[:8] == MARKER:
            length, check, head_check = struct.unpack("<III", head[8:])
            payload = data[position + 20 : position + 20 + length]
            whole = head_check == zlib.crc32(head[:16]) and len(payload) == length
            if whole and check == zlib.crc32(payload):
                payloads.append(payload)
                position += 20 + length
                continue
        position = data.find(MARKER, position + 1)
        if position < 0:
            break
    return payloads


def inflate(payload: bytes) -> bytes:
    if payload[:2] != b"\xc1\x01":
        return payload
    plain = zlib.decompressobj(-15, zdict=DICTIONARY).decompress(payload[2:])
    assert len(plain) <= 16 * len(payload)
    return plain


def raw_deflated(plain: bytes, dictionary: bytes = DICTIONARY) -> bytes:
    deflater = zlib.compressobj(9, wbits=-15, zdict=dictionary)
    return deflater.compress(plain) + deflater.flush()


def deflated(plain: bytes) -> bytes:
    return b"\xc1\x01" + raw_deflated(plain)


def _unpack(data: bytes, contents: Contents) -> Any:
    def extension(code: int, content: bytes) -> Any:
        contents.extensions.add(code)
        if code == 2:
            return int.from_bytes(content, "big", signed=True)
        if code == 5:
            return complex(*struct.unpack("<dd", content))
        if code == 6:
            return datetime.datetime.fromisoformat(content.decode())
        if code == 7:
            return datetime.date.fromisoformat(content.decode())
        if code == 8:
            days, seconds, microseconds = struct.unpack("<iii", content)
            return datetime.timedelta(days, seconds, microseconds)
        return msgpack.ExtType(code, content)

    def array(items: list[Any]) -> Any:
        if items and isinstance(items[0], msgpack.ExtType):
            return {1: tuple, 3: set, 4: frozenset}[items[0].code](items[1:])
        return items

    return msgpack.unpackb(
        data,
        ext_hook=extension,
        list_hook=array,
        strict_map_key=False,
        unicode_errors="surrogatepass",
    )


def _items(dtype: str, data: bytes) -> Any:
    return np.frombuffer(data, f"<{dtype}")


class _Decoder:
    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def column(self, column: list[Any], rows: int) -> list[Any]:
        form, *rest = column
        values = getattr(self, f"_{form}")(*rest, rows)
        assert len(values) == rows
        return values

    def _c(self, value: Any, rows: int) -> list[Any]:
        self.contents.forms.add("c" if value is not None else "c nil")
        return [value] * rows

    def _a(self, first: int, step: int, rows: int) -> list[Any]:
        self.contents.forms.add("a")
        return [first + step * row for row in range(rows)]

    def _n(self, dtype: str, base: Any, scale: Any, data: bytes, rows: int) -> list[Any]:
        self.contents.forms.add(f"n {dtype} {type(scale).__name__}")
        return self._numbers(dtype, base, scale, data).tolist()

    def _o(self, dtype: str, base: Any, scale: Any, data: bytes, rows: int) -> list[Any]:
        self.contents.forms.add(f"o {dtype} {type(scale).__name__}")
        raw = _items(dtype, data)
        missing = raw == np.iinfo(raw.dtype).max if isinstance(scale, float) else np.isnan(raw)
        values = self._numbers(dtype, base, scale, data).tolist()
        return [None if absent else value for value, absent in zip(values, missing, strict=True)]

    def _numbers(self, dtype: str, base: Any, scale: Any, data: bytes) -> Any:
        raw = _items(dtype, data)
        if isinstance(scale, float):
            return base + scale * raw.astype("f8")
        return raw if dtype[0] == "f" else base + scale * raw.astype("i8")

    def _d(self, codes: list[Any], entries: list[Any], rows: int) -> list[Any]:
        self.contents.forms.add("d")
        return [entries[code] for code in self.column(codes, rows)]

    def _k(
        self, kinds: bytes, texts: list[Any], codes: list[Any], *words_and_rows: Any
    ) -> list[Any]:
        *words, rows = words_and_rows
        self.contents.forms.add("k")
        self.contents.key_kinds.update(kinds)
        numbers = [self.column(word, rows) for word in words]
        return [
            self._key(kinds[code], texts[code], [word[row] for word in numbers])
            for row, code in enumerate(self.column(codes, rows))
        ]

    def _key(self, kind: int, text: Any, words: list[int]) -> Any:
        digits = "".join(f"{word:08x}" for word in words)
        if kind == 0:
            return text
        if kind == 1:
            return f"{text}-{words[0]}"
        if kind == 2:
            return f"{text}-{digits}"
        if kind == 3:
            groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            return "-".join((text, *groups))
        if kind == 4:
            return f"{text}-{(words[0] * 2**32 + words[1]) / 2**22!r}"
        if kind == 5:
            return _unpack(text, self.contents)
        return (text, *words[: kind - 8])

    def _l(self, lengths: list[Any], inner: list[Any], rows: int) -> list[Any]:
        self.contents.forms.add("l")
        counts = self.column(lengths, rows)
        keys = iter(self.column(inner, sum(counts)))
        return [[next(keys) for _ in range(count)] for count in counts]
