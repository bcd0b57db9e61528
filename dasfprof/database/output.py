"""`TraceOutput`: a file that is only appended to, even if its directory is removed meanwhile.

A file of a long run is followed by others, its segments: each is a trace file of its own, and the
closing frame of each that is followed by one says where its index is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from dasfprof.database.disk_space import reserve
from dasfprof.database.frames import EventsFrame

#: Bytes kept for the closing frame, so that it can tell of losses on a disk that stays full. It has
#: at most about 200.
MARGIN_BYTES = 512


#: Place of a block in its file, and `EventsFrame.about`.
IndexedBlock = tuple[int, str, float, float]


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
        Returns the header's frame of a segment, by its number; called for each new file.
    segment_size
        Bytes after which the next segment begins; 0: never.
    ending
        Returns the index of a segment and its closing frame, from the index's blocks and place.
    ended
        Called when they were written.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[int], bytes],
        segment_size: int = 0,
        ending: Callable[[list[IndexedBlock], int], bytes] = lambda blocks, place: b"",
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        #: The segments, the last one being written. Absolute, so that a change of the working
        #: directory has no effect.
        self.paths = [path.absolute()]
        #: Whether the file was created; its header may still be missing.
        self.created = False
        self._header = header
        self._headed = False
        self._margin = MARGIN_BYTES
        self._segment_size = segment_size
        self._ending = ending
        self._ended = ended
        self._blocks: list[IndexedBlock] = []

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self.paths[-1]

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
        self.paths[-1] = create_exclusively(self.path)
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
            begin, header = file.tell(), b""
            if not self._headed or begin == 0:
                header = self._header(len(self.paths))
            if begin == 0:
                self._blocks = []
            if self._margin:
                reserve(file, len(header) + len(frame) + self._margin)
            _write(file, header + frame)
            size = file.tell()
        self._headed = True
        if self._segment_size and isinstance(frame, EventsFrame):
            self._blocks.append((begin + len(header), *frame.about))
            # At once: the next frame counts the losses of the segment in which it is.
            if size >= self._segment_size:
                self._begin_segment()

    def _begin_segment(self) -> None:
        """Go on in a new file; in the same one while none can be created."""
        first, number = self.paths[0], len(self.paths) + 1
        try:
            path = create_exclusively(first.with_name(f"{first.stem}.segment{number:04d}.msgpack"))
        except OSError:
            return
        with suppress(OSError), self.path.open("ab", buffering=0) as file:
            _write(file, self._ending(self._blocks, file.tell()))
            self._ended()
        self.paths.append(path)
        self._headed, self._blocks = False, []
        with suppress(OSError):
            self.append(b"")


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


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
