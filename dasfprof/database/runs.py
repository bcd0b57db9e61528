"""`TraceFiles`: the files of a run in one directory or storage.

`choose_run` chooses among several runs.

This module also contains the naming scheme of a run's files in a storage.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.text import count_of


@dataclass
class TraceFiles:
    """The files of a run in one directory or storage."""

    name: str
    #: Time when the run was created, in Unix seconds, or 0 for files of DASF.
    created: float = 0.0
    files: list[Path] = field(default_factory=list)


AnyRun = TypeVar("AnyRun", bound=TraceFiles)


def choose_run(runs: Sequence[AnyRun], prefix: str, place: str, source: str) -> AnyRun:
    """Return the run whose name equals `prefix` or begins with it.

    Warn if the newest of several matching runs was chosen.

    Parameters
    ----------
    runs
        The runs of one directory, newest first.
    prefix
        The name of the run, the start of the name, or an empty text for the newest run.
    place
        The directory or its URL, for messages.
    source
        The argument that the user passed, for messages.

    Raises
    ------
    SourceNotFoundError
        If no run matches.
    InvalidArgumentError
        If runs with different names match a prefix, or if it is unknown which run is the newest.
    """
    if not runs and not prefix:
        raise SourceNotFoundError(
            f"{source!r} contains no trace files. Pass the directory of the recording, or a "
            "file, a glob or a prefix of a run's name."
        )
    matching = [run for run in runs if run.name == prefix]
    matching = matching or [run for run in runs if run.name.startswith(prefix)]
    names = sorted({run.name for run in matching})
    if not names:
        known_names = ", ".join(sorted({run.name for run in runs})) or "none"
        raise SourceNotFoundError(
            f"no trace file, directory, pattern or run {source!r}; runs found in {place}: "
            f"{known_names}. Pass a file, a directory, a glob or a prefix of a run's name."
        )
    is_newest_known = len(matching) > 1 and matching[0].created > matching[1].created
    if len(names) > 1 and not prefix and is_newest_known:
        others = len(runs) - 1
        warnings.warn(
            f"{source!r} contains {count_of(others, 'other run')}. The newest, "
            f"{matching[0].name!r}, is opened. To choose another, pass its name, for example "
            f"{os.path.join(place, matching[1].name)!r}. `dasfprof info {place}` lists them.",
            stacklevel=3,
        )
        return matching[0]
    if len(names) > 1:
        raise InvalidArgumentError(
            f"{source!r} contains {len(names)} runs: {', '.join(names)}. Pass the name of one of "
            f"them, for example {os.path.join(place, names[-1])!r}."
        )
    if len(matching) > 1:
        warnings.warn(
            f"{len(matching)} runs are named {names[0]!r}. The newest is opened. Pass a glob of "
            "their files to open another.",
            stacklevel=3,
        )
    return matching[0]


def missing_file(path: Path) -> SourceNotFoundError:
    """Return the error for a missing file."""
    return SourceNotFoundError(
        f"there is no trace file {path}. Pass a file, a directory, a glob or a run's name. "
        f"`dasfprof info {path.parent}` lists the runs there."
    )


#
# TRACES/{run}.{time}.{id}/                 a run, with the time of its creation and its id
#     {name of the file}.{id}/              a trace file; each new file has another id
#         000000000000.msgpack              its first piece, named after its position in the file
#         000000412030.msgpack              the next piece
#         {name of the file}.{function}.pstats   a complete call profile
#
# Each piece contains complete frames, so it can be read alone. The pieces in order make up the
# file. A piece is written by a single process. If this process does not know whether writing
# succeeded, it writes the same bytes again.

_RUN = re.compile(r"(.+)\.(\d{1,12})\.[0-9a-f]{32}")
_FILE = re.compile(r"(.+)\.[0-9a-f]{8}")
_PIECE = re.compile(r"(\d{12,15})\.msgpack")


def run_directory(run: str, created: float, uuid: str) -> str:
    """Return the name of a run's directory in a storage."""
    return f"{run}.{created:.0f}.{uuid}"


def parse_run(directory: str) -> tuple[str, float] | None:
    """Return the name and the creation time (Unix seconds) of a run, from its directory's name.

    Return None if the directory does not belong to a run.
    """
    match = _RUN.fullmatch(directory)
    return (match[1], float(match[2])) if match else None


def file_directory(stem: str, identity: str) -> str:
    """Return the name of the directory that contains the pieces of a trace file."""
    return f"{stem}.{identity[:8]}"


def stem_of(directory: str) -> str | None:
    """Return the name (without suffix) of the trace file to which a directory belongs, or None."""
    match = _FILE.fullmatch(directory)
    return match[1] if match else None


def piece_name(position: int) -> str:
    """Return the name of the piece that starts at a byte position of its trace file."""
    return f"{position:012d}.msgpack"


def position_of(piece: str) -> int | None:
    """Return the byte position at which a piece starts, or None if the file is not a piece."""
    match = _PIECE.fullmatch(piece)
    return int(match[1]) if match else None
