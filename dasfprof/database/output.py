"""A file that is only ever appended to, whatever happens to its directory meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

#: Frames up to this length are tried without asking whether there is room for them.
_TRIED_BYTES = 4096


class TraceOutput:
    """Appends frames to a new file that begins with a header.

    The file is opened for each append and closed again: no descriptor is held, a directory that
    was removed is made again, and space that returns is used. Not safe to use from two threads.

    Parameters
    ----------
    path
        Where to write. An existing file is never touched: a number is put behind the name.
    header
        Makes the header's frame, whenever a file is begun.
    """

    def __init__(self, path: Path, header: Callable[[], bytes]) -> None:
        #: Absolute, so that a change of the working directory does not split the trace.
        self.path = path.absolute()
        #: Whether the file was created; the header may still be missing.
        self.created = False
        self._header = header
        self._headed = False

    def create(self) -> bool:
        """Create the file, empty, unless that was done; tells whether it was done now.

        Raises
        ------
        OSError
            If the directory cannot be made or written.
        """
        if self.created:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path = _create_exclusively(self.path)
        self.created = True
        return True

    def append(self, frame: bytes) -> None:
        """Append a frame, or nothing but the header to a new file.

        Raises
        ------
        OSError
            If it cannot be written; a part of it may be in the file.
        """
        self.create()
        try:
            file = self.path.open("ab", buffering=0)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab", buffering=0)
        with file:
            # New, made again after somebody removed it, or the disk was full for the first header.
            if not self._headed or file.tell() == 0:
                frame = self._header() + frame
            _check_room(self.path, len(frame))
            view = memoryview(frame)
            while view:
                view = view[file.write(view) :]
        self._headed = True


def _check_room(path: Path, length: int) -> None:
    """Refuse a frame for which the disk has no room: a part of it would take what is left."""
    if length > _TRIED_BYTES and hasattr(os, "statvfs"):
        disk = os.statvfs(path)
        if disk.f_blocks and disk.f_bfree * disk.f_frsize < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _create_exclusively(path: Path) -> Path:
    """Create a new empty file; where the name is taken, put the next free number behind it."""
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        else:
            return candidate
