"""Where a run's files are in a storage: the names of its directories and pieces.

::

    TRACES/{run}.{time}.{id}/                a run; the Unix time and the id of its creation
      {name of the file}.{id}/               a trace file; its id differs for each that was begun
        000000000000.msgpack                 its first bytes; the name says at which it begins
        000000412030.msgpack                 those that follow, and so on
        {name of the file}.{function}.pstats  profiles of calls, whole

Each piece holds whole frames, so each can be read alone, and all of them one after the other are
the file. A piece is written once, by one process; where that is not sure that it was written, it
writes the same bytes again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_RUN = re.compile(r"(.+)\.(\d{1,12})\.([0-9a-f]{32})")
_FILE = re.compile(r"(.+)\.[0-9a-f]{8}")
_PIECE = re.compile(r"(\d{12,15})\.msgpack")


class RunName(NamedTuple):
    """What the name of a run's directory tells."""

    run: str
    #: Unix seconds.
    created: int
    uuid: str


def run_directory(run: str, created: float, uuid: str) -> str:
    """Return the name of a run's directory."""
    return f"{run}.{created:.0f}.{uuid}"


def parse_run(directory: str) -> RunName | None:
    """Return what the name of a run's directory tells; None for another."""
    found = _RUN.fullmatch(directory)
    return RunName(found[1], int(found[2]), found[3]) if found else None


def file_directory(stem: str, identity: str) -> str:
    """Return the name of the directory of a trace file's pieces."""
    return f"{stem}.{identity[:8]}"


def stem_of(directory: str) -> str | None:
    """Return the name of the trace file, without suffix; None for another directory."""
    found = _FILE.fullmatch(directory)
    return found[1] if found else None


def piece_name(position: int) -> str:
    """Return the name of the piece that begins at a byte of its file."""
    return f"{position:012d}.msgpack"


def position_of(piece: str) -> int | None:
    """Return the byte at which a piece begins; None for another file."""
    found = _PIECE.fullmatch(piece)
    return int(found[1]) if found else None
