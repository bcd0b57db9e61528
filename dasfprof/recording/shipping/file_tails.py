"""`FileTail`: reads the frames that another thread appends to a file of a process."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from glob import escape
from pathlib import Path

from dasfprof.database import FileDatabase, frames
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.multi import headers_of_run, identity_of, was_received
from dasfprof.database.reader import TraceFile

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
    abandoned
        Files of processes that ended without sending all of them.
    """

    def __init__(
        self,
        databases: Sequence[FileDatabase],
        piece: int = PIECE_BYTES,
        abandoned: Sequence[Path] = (),
    ) -> None:
        self._piece = piece
        self._abandoned = [FileTail(partial(Path, path), piece) for path in abandoned]
        self._tails: list[tuple[FileDatabase, list[FileTail]]] = [(db, []) for db in databases]
        # Several threads look for new segments, and each segment must have one tail.
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[FileTail]:
        yield from self._abandoned
        for database, tails in self._tails:
            with self._lock:
                for segment in range(len(tails), len(database.paths)):
                    tails.append(FileTail(partial(_path, database, segment), self._piece))
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
        #: Identifier of this file among those of all workers, which is the same in any process that
        #: reads it. It changes if the file is created again.
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
        """Return the complete frames after the offset, or nothing if there are none.

        Parameters
        ----------
        length
            The length that an earlier call returned, to get the same bytes. The default is all that
            the file has now.

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
            if facts.st_ino != self._inode:
                # The first read, or the file was removed and its writer has created it again.
                self.id, self.offset = _id_of(self.path, facts.st_ino), 0
            self._inode = facts.st_ino
            unsent, length = facts.st_size - self.offset, length or self._piece
            while unsent > 0:
                data = os.pread(file.fileno(), min(length, unsent), self.offset)
                end = frames.end_of_frames(data)
                if end or length >= min(unsent, _LONGEST):
                    return data[:end]
                length *= 2
        return b""


def profiles_of(path: Path) -> list[Path]:
    """Return the profiles of calls next to a trace file."""
    return sorted(path.parent.glob(f"{escape(path.stem)}.*.pstats"))


def _id_of(path: Path, inode: int) -> str:
    identity = identity_of(TraceFile(path).read_header())
    return (
        uuid.uuid5(uuid.NAMESPACE_URL, f"{identity} {inode}").hex if identity else uuid.uuid4().hex
    )


def abandoned_files(directory: Path, run_uuid: str) -> list[Path]:
    """Return a run's files in a directory whose processes ended without closing them."""
    return [
        path
        for path, header in headers_of_run(directory, run_uuid)
        if not was_received(path)
        and writer_of(header) is Writer.ENDED
        and not TraceFile(path).is_closed()
    ]


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(PIECE_BYTES):
            digest.update(data)
    return digest.hexdigest()
