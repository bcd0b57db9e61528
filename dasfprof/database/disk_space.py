"""Space on the disk that is reserved before it is written."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from io import FileIO

#: Up to this length, space is reserved without a look at what is free.
_TRIED_BYTES = 4096
#: Of <linux/falloc.h>. Python's `os.posix_fallocate` makes the file longer.
_KEEP_SIZE = 1
#: What `fallocate` answers where a file system cannot reserve space, as NFS.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM}

if sys.platform == "linux":  # traces are written there, and read anywhere
    import resource

    _fallocate = ctypes.CDLL(None, use_errno=True).fallocate


def reserve(file: FileIO, length: int) -> None:
    """Reserve space for `length` bytes behind a file's end; the file itself stays as it is.

    Where the file system cannot reserve, this only checks that there is so much free space.

    Raises
    ------
    OSError
        If the disk, a quota or a limit of the process leaves no room for so many bytes.
    """
    if sys.platform != "linux":
        return
    longest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)  # `fallocate` does not look at it
    if longest != resource.RLIM_INFINITY and file.tell() + length > longest:
        raise _error(errno.EFBIG, file)
    # A try would take all that is left of a nearly full disk, and keep it.
    if length > _TRIED_BYTES:
        _check_free(file, length)
    if not _allocate(file, length):
        _check_free(file, length)


def _allocate(file: FileIO, length: int) -> bool:
    """Reserve space; return False where that is not possible."""
    start, count = ctypes.c_long(file.tell()), ctypes.c_long(length)
    while _fallocate(file.fileno(), _KEEP_SIZE, start, count):
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
