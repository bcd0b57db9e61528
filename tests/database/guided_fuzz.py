"""Fuzzing that looks for code not reached yet, with atheris: run by `test_guided_fuzz`.

``python guided_fuzz.py CORPUS [libFuzzer's options]``: each input is a block's payload, as it is
in a file whose checksums are right. An exception that is not the package's own ends the run with
an exit status.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris
from trace_by_format import deflated, frame_of

with atheris.instrument_imports(include=["dasfprof.database"]):
    from dasfprof.database import open_run
    from dasfprof.errors import DasfprofError

PATH = Path(tempfile.mkdtemp(), "fuzzed.msgpack")
HEADER = frame_of(b"\x81\xa4kind\xa6header")


def read(data: bytes) -> None:
    """Read a file of a header, this payload, and this deflated, by columns and as events."""
    PATH.write_bytes(HEADER + frame_of(data) + frame_of(deflated(data)))
    with contextlib.suppress(DasfprofError):
        for _, batch in open_run(PATH).batches():
            batch.events()


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
