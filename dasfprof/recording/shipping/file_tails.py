"""`FileTail`: reads the frames that another thread appends to a file of a process."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from glob import escape
from pathlib import Path

from dasfprof.database import FileDatabase, frames

#: Default number of bytes per read, and the maximum for longer frames.
PIECE_BYTES = 1 << 20
_LONGEST = 1 << 28


class FileTails:
    """The tails of the files of some databases, one per segment.

    Parameters
    ----------
    databases
        The databases.
    piece
        See `FileTail`.
    """

    def __init__(self, databases: Sequence[FileDatabase], piece: int = PIECE_BYTES) -> None:
        self._piece = piece
        self._tails: list[tuple[FileDatabase, list[FileTail]]] = [(one, []) for one in databases]
        # Several threads look for new segments, and each segment must have one tail.
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[FileTail]:
        for database, tails in self._tails:
            with self._lock:
                for at in range(len(tails), len(database.paths)):
                    tails.append(FileTail(partial(_path, database, at), self._piece))
            yield from tails


def _path(database: FileDatabase, segment: int) -> Path:
    return database.paths[segment]


class FileTail:
    """The part of a trace file that was not sent yet.

    Parameters
    ----------
    path
        Returns the file's path, which is final when the file is created.
    piece
        Maximum number of bytes per read; more if a frame is longer.
    """

    def __init__(self, path: Callable[[], Path], piece: int = PIECE_BYTES) -> None:
        self._path = path
        self._piece = piece
        #: Identifies this file among those of all workers; a new one if the file is created again.
        self.id = uuid.uuid4().hex
        #: Number of bytes that were sent and arrived.
        self.offset = 0
        self._inode = 0

    @property
    def path(self) -> Path:
        """The file, which may not exist yet."""
        return self._path()

    def unsent(self) -> int:
        """Return the number of bytes that were not sent."""
        try:
            return max(self.path.stat().st_size - self.offset, 0)
        except OSError:
            return 0

    def read(self, length: int | None = None) -> bytes:
        """Return the whole frames after the offset; empty if there is none.

        Parameters
        ----------
        length
            The length that an earlier call returned, to get the same bytes. Default: all that the
            file has now.

        Raises
        ------
        OSError
            If the file cannot be read.
        """
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return b""
        with file:
            facts = os.fstat(file.fileno())
            if self._inode and facts.st_ino != self._inode:
                # It was removed under the writer's hands, which began a new one.
                self.id, self.offset = uuid.uuid4().hex, 0
            self._inode = facts.st_ino
            left, length = facts.st_size - self.offset, length or self._piece
            while left > 0:
                data = os.pread(file.fileno(), min(length, left), self.offset)
                end = frames.whole_frames(data)
                if end or length >= min(left, _LONGEST):
                    return data[:end]
                length *= 2
        return b""


def profiles_of(path: Path) -> list[Path]:
    """Return the profiles of calls beside a trace file."""
    return sorted(path.parent.glob(f"{escape(path.stem)}.*.pstats"))
