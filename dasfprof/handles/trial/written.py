"""Which files of the working directory a program has written."""

from __future__ import annotations

import os
from pathlib import Path

from dasfprof.text import clean

#: What Python and Dask leave there.
_OTHERS = {"__pycache__", "dask-scratch-space", "dask-worker-space"}
_MOST = 5


def files_here() -> dict[str, tuple[int, int]]:
    """Return the time and size of each entry of the working directory, not of those within."""
    found = {}
    with os.scandir() as entries:
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue
            found[entry.name] = status.st_mtime_ns, status.st_size
    return found


def changed_files(before: dict[str, tuple[int, int]], traces: Path) -> list[str]:
    """Return the names of entries that are new or others than before, our own traces left out.

    Of many the first few, and how many there are besides.
    """
    own = _OTHERS | {Path(os.path.relpath(traces)).parts[0]}
    changed = sorted(
        name
        for name, status in files_here().items()
        if name not in own and before.get(name) != status
    )
    names = [clean(name) for name in changed[:_MOST]]
    return names if len(changed) <= _MOST else [*names, f"and {len(changed) - _MOST} more"]
