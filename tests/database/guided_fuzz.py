"""Coverage-guided fuzzing with atheris, run by `test_guided_fuzz`.

``python guided_fuzz.py CORPUS [libFuzzer's options]``: each input is the payload of a block in a
file with right checksums. An exception that is not one of the package ends the run with an exit
status.
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
    """Read a file with a header and this payload, plain and deflated, as columns and as events."""
    PATH.write_bytes(HEADER + frame_of(data) + frame_of(deflated(data)))
    with contextlib.suppress(DasfprofError):
        for _, batch in open_run(PATH).batches():
            batch.events()


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
