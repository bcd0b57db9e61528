"""`FileTail`: reads the frames that another thread of this process appends to a trace file."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

from dasfprof.database import frames
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.multi import headers_of_run, identity_of, was_received
from dasfprof.database.reader import TraceFile

#: Default number of bytes per read, and maximum number of bytes per read if a frame is longer.
PIECE_BYTES = 1 << 20
_LONGEST = 1 << 28


class FileTail:
    """The part of a trace file that was not sent yet.

    Parameters
    ----------
    paths, segment
        A list, and the index of the file's path in it. The path may change until the file is
        created.
    piece
        Maximum number of bytes per read. If a frame is longer, more bytes are read.
    """

    def __init__(self, paths: list[Path], segment: int, piece: int) -> None:
        self._paths, self._segment = paths, segment
        self._piece = piece
        #: Identifier of the file, unique among the files of all workers. Each process that reads
        #: the file computes the same identifier. It changes if the file is created again.
        self.id = uuid.uuid4().hex
        #: Number of bytes, from the start of the file, that have arrived at the target.
        self.offset = 0
        self._inode = 0

    @property
    def path(self) -> Path:
        """The path of the file, which may not exist yet."""
        return self._paths[self._segment]

    def unsent(self) -> int:
        """Return the number of bytes that have not arrived at the target."""
        try:
            return max(self.path.stat().st_size - self.offset, 0)
        except OSError:
            return 0

    def read(self, length: int | None = None) -> bytes:
        """Return complete frames that were not sent yet, or no bytes if there are no such frames.

        Parameters
        ----------
        length
            Maximum number of bytes. To get the same bytes as an earlier call, pass the length of
            its result. The default is `piece` of this object.

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
                # This is the first read, or the file was removed and created again.
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
    """Return the paths of the call profiles that belong to a trace file."""
    # Python remembers patterns, so the pattern does not contain the name of the run.
    profiles = path.parent.glob("*.pstats")
    return sorted(profile for profile in profiles if profile.name.startswith(f"{path.stem}."))


def _id_of(path: Path, inode: int) -> str:
    identity = identity_of(TraceFile(path).read_header())
    return (
        uuid.uuid5(uuid.NAMESPACE_URL, f"{identity} {inode}").hex if identity else uuid.uuid4().hex
    )


def abandoned_files(directory: Path, run_uuid: str) -> list[Path]:
    """Return the files of a run that were not closed before the processes that wrote them ended."""
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
