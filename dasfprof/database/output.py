"""`TraceOutput`: appends frames to a trace file, and continues in a new file if it was removed.

In a long run, a process writes several files one after another, which are called segments. Each
segment is a trace file. If another segment follows, the closing frame of a segment contains the
position of an index of its blocks.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from dasfprof import system
from dasfprof.database import frames, values
from dasfprof.database.losses import Losses
from dasfprof.text import count_of

#: Maximum length (bytes) for which space is reserved without checking the free space first.
_TRIED_BYTES = 4096
#: Constant of <linux/falloc.h> for reserving space without making the file longer. Python's
#: `os.posix_fallocate` lacks it.
_KEEP_SIZE = 1
#: Error numbers of `fallocate` that mean that the file system, such as NFS, cannot reserve space.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM}


def reserve(file: FileIO, length: int) -> None:
    """Reserve space for `length` bytes after the end of a file, without changing the file.

    If the file system cannot reserve space, only check whether there is enough free space.

    Raises
    ------
    OSError
        If there is not enough space because of the disk, a quota, or a limit of the process.
    """
    if system.fallocate is None:
        return
    if file.tell() + length > system.file_size_limit():  # `fallocate` does not check this limit.
        raise _error(errno.EFBIG, file)
    # On a nearly full disk, a failed `fallocate` would reserve all of the remaining space.
    if length > _TRIED_BYTES:
        _check_free(file, length)
    if not _allocate(file, length):
        _check_free(file, length)


def _allocate(file: FileIO, length: int) -> bool:
    """Reserve space. Return False if the file system cannot reserve space."""
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

#: Number of bytes that are reserved for the closing frame, so that it can report losses even if the
#: disk is full. The closing frame has at most about 200 bytes.
MARGIN_BYTES = 512


#: Facts about a block for the index of its file: the name of the events, the start of the first
#: event, the end of the last event (Unix seconds), and the number of events.
BlockFacts = tuple[str, float, float, int]


class TraceOutput:
    """Appends frames to a new file, after a header. It is not thread-safe.

    If the file was removed, moved or truncated, writing continues in the next segment. If there are
    no segments, it continues in the same file, which is created again if necessary. The next header
    reports how much was written before.

    Parameters
    ----------
    path
        The path of the file. If another file has this name, a number is added to the name.
    header
        Facts about this process and the run, for the header of each file.
    losses
        The dropped events and errors, which each frame reports.
    segment_size
        Size in bytes after which the next segment begins, or 0 for a single file.
    """

    def __init__(
        self, path: Path, header: dict[str, Any], losses: Losses, segment_size: int
    ) -> None:
        #: Paths of the segments. The last segment is being written. The paths are absolute, so that
        #: changes of the working directory have no effect.
        self.paths = [path.absolute()]
        #: Whether the file was created. Its header may still be missing.
        self.created = False
        #: Number of events that have got a position (`events`), and number of events that were
        #: written (`stored`), in all segments.
        self.events = self.stored = 0
        self._header, self._losses = header, losses
        self._headed = False
        #: Number of the current segment, and the entries of its header about earlier segments.
        self._number = 1
        self._about: dict[str, Any] = {}
        #: Number of blocks that were written to all segments, and time when the last of them was
        #: written, in Unix seconds.
        self._blocks_written = 0
        self._last: float | None = None
        #: Length of the file after the last append (None if unknown, because writing failed), and
        #: identity of the file.
        self._size: int | None = 0
        self._identity: tuple[int, int] | None = None
        #: Number of bytes that each append reserves for the closing frame.
        self.margin = MARGIN_BYTES
        self._segment_size = segment_size
        #: The entries of the segment's index.
        self._index: list[tuple[int, str, float, float]] = []

    @property
    def path(self) -> Path:
        """The path of the file that is being written."""
        return self.paths[-1]

    def create(self) -> bool:
        """Create an empty file, unless an earlier call has created it.

        Return whether this call created the file.

        Raises
        ------
        OSError
            If the directory cannot be created or written.
        """
        if self.created:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.paths[-1] = create_exclusively(self.path)
        self.created = True
        return True

    def common_entries(self) -> dict[str, Any]:
        """Return the entries that all frames have: the current time, and the losses so far."""
        return {"clock": [time.time(), time.monotonic()], **self._losses.about()}

    def frame(self, block: dict[str, Any]) -> bytes:
        """Return a frame with the entries of a map and the common entries."""
        return frames.build_frame(values.pack({**block, **self.common_entries()}))

    def append(self, frame: bytes, block: BlockFacts | None = None) -> None:
        """Append a frame. If `frame` is empty, only the header of a new file is written.

        `block` has the facts about a frame of events. For other frames, it is None.

        Raises
        ------
        OSError
            If the frame cannot be written. The file may then contain a part of the frame.
        """
        # Opening the file for each append leaves no descriptor open, and a disk that was full is
        # tried again.
        with self._opened() as file:
            # The header is missing if the file is new, or if the disk was full before.
            begin = file.tell()
            header = b"" if self._headed else self._header_frame()
            self._size = None
            # If the file system supports it, reserve space for the closing frame after the end of
            # the file.
            if self.margin:
                reserve(file, len(header) + len(frame) + self.margin)
            _write(file, header + frame)
            size = file.tell()
        self._headed, self._size = True, size
        if block is not None:
            name, first, last, rows = block
            self.stored, self._blocks_written = self.stored + rows, self._blocks_written + 1
            self._last = time.time()
            self._index.append((begin + len(header), name, first, last))
            # Begin the next segment immediately, because frames count the losses of their segment.
            if 0 < self._segment_size <= size:
                self._begin_segment()

    def _header_frame(self) -> bytes:
        header = {**self._header, "kind": "header"}
        if self._number > 1:
            created = {"created": time.time(), "first_created": header.get("created")}
            header |= {**created, "segment": self._number, **self._about}
        return self.frame(header)

    def _opened(self) -> FileIO:
        """Open the file for appending. If it is missing or was changed, continue in a new file."""
        self.create()
        is_cut = False
        with suppress(FileNotFoundError):
            file = _open(self.path)
            size, identity = _facts(file)
            is_same = identity == self._identity
            # Compare the length rather than the identity: some file systems give a file a new inode
            # number each time, and others reuse the number of a removed file.
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
        """Continue in another file, because the current file is missing or was changed.

        If the output has no segments and the file was only truncated, continue in the same file.
        """
        previous = self.path
        if self._segment_size or not is_cut:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            path = create_exclusively(self._next_path())
            if self._segment_size:
                self.paths.append(path)
            else:
                self.paths[-1] = path
        self._begin_header(is_replacement=True)
        if self.stored:
            logger.warning(
                "the trace %s is missing or was changed: it or its directory was removed, moved, "
                "truncated or unmounted. %s in %s had been written. Recording continues in %s.",
                previous,
                count_of(self.stored, "event"),
                count_of(self._blocks_written, "block"),
                self.path,
            )

    def _begin_segment(self) -> None:
        """End the segment and continue in a new file, or in the same one if none can be created."""
        try:
            path = create_exclusively(self._next_path())
        except OSError:
            return
        with suppress(OSError), _open(self.path) as file:
            position = file.tell()
            index = self.frame({"kind": "index", "blocks": [*map(list, self._index)]})
            end = {"kind": "end", "events": self.events, "continues": True, "index": position}
            _write(file, index + self.frame(end))
            self._losses.begin_segment()
        self.paths.append(path)
        self._begin_header()
        with suppress(OSError):
            self.append(b"")

    def _next_path(self) -> Path:
        """Return the path of the next segment, or of the single file if `segment_size` is 0."""
        first = self.paths[0]
        if not self._segment_size:
            return first
        return first.with_name(f"{first.stem}.segment{self._number + 1:04d}.msgpack")

    def _begin_header(self, is_replacement: bool = False) -> None:
        """Prepare the header of the next segment. It is written when the next frame is appended.

        If `is_replacement` is true, the header reports that the previous file is gone.
        """
        self._number += 1
        self._headed, self._index, self._size = False, [], None if is_replacement else 0
        before = {"blocks": self._blocks_written, "events": self.stored, "until": self._last}
        self._about = {"before": {**before, "gone": True} if is_replacement else before}


def _open(path: Path) -> FileIO:
    """Open an existing file for appending. Raise `FileNotFoundError` if there is no such file."""
    return FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags & ~os.O_CREAT))


def _facts(file: FileIO) -> tuple[int, tuple[int, int]]:
    """Return the length of a file in bytes, and its identity (device and inode)."""
    facts = os.fstat(file.fileno())
    return facts.st_size, (facts.st_dev, facts.st_ino)


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def create_exclusively(path: Path) -> Path:
    """Create a new empty file, and return its path.

    If another file has the name, the next free number is added to the name.
    """
    number, candidate = 1, path
    while True:
        try:
            candidate.open("xb").close()
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
