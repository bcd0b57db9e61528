"""`TraceOutput`: a file that is only appended to, even if its directory is removed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dasfprof.database.disk_space import reserve

#: Bytes kept for the closing frame, so that it can tell of losses on a disk that stays full. It has
#: at most about 200.
MARGIN_BYTES = 512


class TraceOutput:
    """Appends frames to a new file, after a header.

    The file is opened for each append and closed again: no descriptor is kept, a directory that
    was removed is created again, and a full disk is tried again. Beyond its end space is reserved
    for the closing frame, where the file system can do that. Not thread-safe.

    Parameters
    ----------
    path
        The file. If it exists, it is left alone and a number is added to the name.
    header
        Returns the header's frame; called for each new file.
    """

    def __init__(self, path: Path, header: Callable[[], bytes]) -> None:
        #: Absolute, so that a change of the working directory has no effect.
        self.path = path.absolute()
        #: Whether the file was created; its header may still be missing.
        self.created = False
        self._header = header
        self._headed = False
        self._margin = MARGIN_BYTES

    def create(self) -> bool:
        """Create the file, empty, if it was not yet; return whether it was created now.

        Raises
        ------
        OSError
            If the directory cannot be made or written.
        """
        if self.created:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path = create_exclusively(self.path)
        self.created = True
        return True

    def release_margin(self) -> None:
        """Let the next frame, the closing one, use the reserved space."""
        self._margin = 0

    def append(self, frame: bytes) -> None:
        """Append a frame. An empty frame appends the header only, to a new file.

        Raises
        ------
        OSError
            If the frame cannot be written; a part of it may be in the file.
        """
        self.create()
        try:
            file = self.path.open("ab", buffering=0)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab", buffering=0)
        with file:
            # New, created again after it was removed, or the disk was full for the header.
            if not self._headed or file.tell() == 0:
                frame = self._header() + frame
            if self._margin:
                reserve(file, len(frame) + self._margin)
            view = memoryview(frame)
            while view:
                view = view[file.write(view) :]
        self._headed = True


def create_exclusively(path: Path) -> Path:
    """Create a new empty file; if the name is taken, add the next free number to it."""
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        else:
            return candidate
