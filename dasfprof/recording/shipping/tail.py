"""`FileTail`: reads the whole frames that another thread appends to a file."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from dasfprof.database import frames

#: Bytes that one read takes; up to the second where a frame is longer.
PIECE_BYTES = 1 << 20
_LONGEST = 1 << 28


class FileTail:
    """The part of a trace file that was not shipped yet.

    Parameters
    ----------
    path
        Returns the file's path, which is final when the file is created.
    """

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        #: Stands for this file among those of all workers; a new one where it was made anew.
        self.id = uuid.uuid4().hex
        #: Bytes of it that were sent; fewer where not all of them arrived.
        self.offset = 0
        self._inode = 0

    @property
    def path(self) -> Path:
        """The file; it may be missing yet."""
        return self._path()

    def read(self) -> bytes:
        """Return what follows the offset, up to the end of a whole frame; empty if there is none.

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
            left, length = facts.st_size - self.offset, PIECE_BYTES
            while left > 0:
                data = os.pread(file.fileno(), min(length, left), self.offset)
                end = frames.whole_frames(data)
                if end or length >= min(left, _LONGEST):
                    return data[:end]
                length *= 2
        return b""
