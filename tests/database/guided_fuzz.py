"""Fuzzing that looks for code not reached yet, with atheris: run by `test_guided_fuzz`.

``python guided_fuzz.py CORPUS [libFuzzer's options]``: each input is a block's payload, as it is
in a file whose checksums are right. An exception that is not the package's own ends the run with
an exit status.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dasfprof.database"]):
    from dasfprof.database import open_run
    from dasfprof.errors import DasfprofError

MARKER = b"\xc1dasfpf\n"

PATH = Path(tempfile.mkdtemp(), "fuzzed.msgpack")


def frame_of(payload: bytes) -> bytes:
    head = MARKER + struct.pack("<II", len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


HEADER = frame_of(b"\x81\xa4kind\xa6header")


def read(data: bytes) -> None:
    """Read a file of a header, this payload, and this deflated, by columns and as events."""
    deflater = zlib.compressobj(1, wbits=-15)
    deflated = b"\xc1\x01" + deflater.compress(data) + deflater.flush()
    PATH.write_bytes(HEADER + frame_of(data) + frame_of(deflated))
    with contextlib.suppress(DasfprofError):
        for _, batch in open_run(PATH).batches():
            batch.events()


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
