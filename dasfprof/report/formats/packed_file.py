"""`opened`: a file to write, compressed if its name says so."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: zlib's: a higher one takes longer than all the rest and saves little.
_LEVEL = 3


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed if its name ends in ``.gz``."""
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        # Neither a name nor a time in it: equal runs give equal files.
        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
