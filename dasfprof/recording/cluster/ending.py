"""Whether a cluster that does not answer has ended, as far as this process can see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from dasfprof.database.reader import TraceFile
from dasfprof.database.writing_process import Writer, writer_of
from dasfprof.errors import TraceError
from dasfprof.recording.cluster.link import ClusterLink

#: Seconds between two checks of files that are about to be closed.
_POLL_INTERVAL = 0.1


async def wait_for_end(
    link: ClusterLink, list_files: Callable[[], list[Path]], deadline: float
) -> bool:
    """Return whether the cluster has closed, or its files are complete, before a deadline.

    Parameters
    ----------
    link
        The cluster.
    list_files
        Lists the run's files on this machine.
    deadline
        On the monotonic clock.
    """
    while not link.is_closed and not await asyncio.to_thread(_are_final, list_files):
        if monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


def _are_final(list_files: Callable[[], list[Path]]) -> bool:
    """Return whether there are files and none is still being written."""
    try:
        files = [TraceFile(path) for path in list_files()]
        ended = (f.is_closed() or writer_of(f.read_header()) is Writer.ENDED for f in files)
        return bool(files) and all(ended)
    except (OSError, TraceError):
        return False
