"""`TraceOutput`: a file that is only appended to, and its successor if it is removed meanwhile.

The file of a long run is followed by others, its segments. Each segment is a trace file, and the
closing frame of a segment with a successor contains the position of its index.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from dasfprof import system
from dasfprof.database.frames import EventsFrame
from dasfprof.text import count_of

# --- Reservation of disk space before it is written -----------------------------------------------

#: Maximum length for which space is reserved without checking the free space.
_TRIED_BYTES = 4096
#: Constant of <linux/falloc.h>. Python's `os.posix_fallocate` makes the file longer.
_KEEP_SIZE = 1
#: Errors of `fallocate` if a file system cannot reserve space, such as NFS.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM}


def reserve(file: FileIO, length: int) -> None:
    """Reserve space for `length` bytes after the end of a file, which itself stays unchanged.

    If the file system cannot reserve space, this only checks the free space.

    Raises
    ------
    OSError
        If the disk, a quota or a limit of the process leaves no room for so many bytes.
    """
    if system.fallocate is None:
        return
    if file.tell() + length > system.file_size_limit():  # `fallocate` does not check this limit.
        raise _error(errno.EFBIG, file)
    # Trying would take all remaining space of a nearly full disk, and keep it.
    if length > _TRIED_BYTES:
        _check_free(file, length)
    if not _allocate(file, length):
        _check_free(file, length)


def _allocate(file: FileIO, length: int) -> bool:
    """Reserve space, and return False if that is not possible."""
    start, count = ctypes.c_long(file.tell()), ctypes.c_long(length)
    while system.fallocate(file.fileno(), _KEEP_SIZE, start, count):
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        if number != errno.EINTR:
            raise _error(number, file)
    return True


def _check_free(file: FileIO, length: int) -> None:
    disk = os.fstatvfs(file.fileno())
    if disk.f_blocks and disk.f_bfree * disk.f_frsize < length:
        raise _error(errno.ENOSPC, file)


def _error(number: int, file: FileIO) -> OSError:
    return OSError(number, os.strerror(number), file.name)


logger = logging.getLogger(__name__)

#: Bytes reserved for the closing frame, so that it can report losses on a disk that stays full. It
#: has at most about 200 bytes.
MARGIN_BYTES = 512


#: Position of a block in its file, and `EventsFrame.about`.
IndexedBlock = tuple[int, str, float, float]


class TraceOutput:
    """Appends frames to a new file, after a header.

    The file is opened and closed for each append, so no descriptor is kept, and a full disk is
    tried again. If the file is missing or has another length than before, because it or its
    directory was removed, moved or truncated, writing continues in the next segment. Without
    segments, it continues in the same file, which is created again if necessary. The next header
    reports what was written before. After the end of the file, space is reserved for the closing
    frame if the file system supports that. It is not thread-safe.

    Parameters
    ----------
    path
        The file. If it exists, it is left alone and a number is added to the name.
    header
        Returns the header's frame, from the number of the segment and further entries. Called for
        each new file.
    segment_size
        Size in bytes after which the next segment begins, or 0 for a single file.
    ending
        Returns the index and the closing frame of a segment, from the blocks of the index and its
        position.
    ended
        Called when these were written.
    """

    def __init__(
        self,
        path: Path,
        header: Callable[[int, dict[str, Any]], bytes],
        segment_size: int,
        ending: Callable[[list[IndexedBlock], int], bytes],
        ended: Callable[[], None],
    ) -> None:
        #: Segments; the last is being written. Paths are absolute, so that changes of the working
        #: directory have no effect.
        self.paths = [path.absolute()]
        #: Whether the file was created. Its header may still be missing.
        self.created = False
        self._header = header
        self._headed = False
        #: Number of the segment, and what its header reports about earlier segments.
        self._number = 1
        self._about: dict[str, Any] = {}
        #: Numbers of blocks and events that were written.
        self._written = (0, 0)
        #: When the last block was written, in Unix seconds.
        self._last: float | None = None
        #: Length of the file after the last append, or None if unknown because writing failed, and
        #: its identity.
        self._size: int | None = 0
        self._identity: tuple[int, int] | None = None
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
        """Create the file, empty, unless it exists, and return whether it was created now.

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
        """Allow the next frame, which is the closing one, to use the reserved space."""
        self._margin = 0

    def append(self, frame: bytes) -> None:
        """Append a frame. An empty frame only writes the header of a new file.

        Raises
        ------
        OSError
            If the frame cannot be written; a part of it may be in the file.
        """
        with self._opened() as file:
            # The file is new or was recreated, or the disk was full for the header.
            begin = file.tell()
            header = b"" if self._headed else self._header(self._number, self._about)
            self._size = None
            if self._margin:
                reserve(file, len(header) + len(frame) + self._margin)
            _write(file, header + frame)
            size = file.tell()
        self._headed, self._size = True, size
        if isinstance(frame, EventsFrame):
            blocks, events = self._written
            self._written, self._last = (blocks + 1, events + frame.rows), time.time()
            self._blocks.append((begin + len(header), *frame.about))
            # Immediately, because the next frame counts the losses of its segment.
            if 0 < self._segment_size <= size:
                self._begin_segment()

    def _opened(self) -> FileIO:
        """Open the file for appending. If it is missing or was changed, continue in a new file."""
        self.create()
        is_cut = False
        with suppress(FileNotFoundError):
            file = _open(self.path)
            size, identity = _facts(file)
            is_same = identity == self._identity
            # Compare the length, because some file systems give a file a new inode number each
            # time, and others reuse the number of a removed file.
            if size == self._size or (is_same and self._size is None):
                self._identity = identity
                return file
            file.close()
            is_cut = is_same and size < (self._size or 0)
        self._replace_file(is_cut)
        file = _open(self.path)
        _, self._identity = _facts(file)
        return file

    def _replace_file(self, is_cut: bool) -> None:
        """Continue in another file.

        Without segments, continue in the same one if it was truncated.
        """
        previous, (blocks, events) = self.path, self._written
        if self._segment_size or not is_cut:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            path = create_exclusively(self._next_path())
            if self._segment_size:
                self.paths.append(path)
            else:
                self.paths[-1] = path
        self._begin_header(is_replacement=True)
        if events:
            logger.warning(
                "the trace %s is missing or was changed: it or its directory was removed, moved, "
                "truncated or unmounted. %s in %s had been written. Recording continues in %s.",
                previous,
                count_of(events, "event"),
                count_of(blocks, "block"),
                self.path,
            )

    def _begin_segment(self) -> None:
        """Continue in a new file, or in the same file while none can be created."""
        try:
            path = create_exclusively(self._next_path())
        except OSError:
            return
        with suppress(OSError), _open(self.path) as file:
            _write(file, self._ending(self._blocks, file.tell()))
            self._ended()
        self.paths.append(path)
        self._begin_header()
        with suppress(OSError):
            self.append(b"")

    def _next_path(self) -> Path:
        """Return the path of the next segment, or of the file without segments."""
        first = self.paths[0]
        if not self._segment_size:
            return first
        return first.with_name(f"{first.stem}.segment{self._number + 1:04d}.msgpack")

    def _begin_header(self, is_replacement: bool = False) -> None:
        """Write the header of the next segment before the next frame."""
        self._number += 1
        self._headed, self._blocks, self._size = False, [], None if is_replacement else 0
        blocks, events = self._written
        before = {"blocks": blocks, "events": events, "until": self._last}
        self._about = {"before": {**before, "gone": True} if is_replacement else before}


def _open(path: Path) -> FileIO:
    """Open an existing file to append."""
    return FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags & ~os.O_CREAT))


def _facts(file: FileIO) -> tuple[int, tuple[int, int]]:
    """Return the length of a file in bytes, and its identity."""
    facts = os.fstat(file.fileno())
    return facts.st_size, (facts.st_dev, facts.st_ino)


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def create_exclusively(path: Path) -> Path:
    """Create a new empty file. If the name is taken, add the next free number."""
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
