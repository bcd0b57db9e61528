"""The files that this process has open, as Linux lists them."""

from __future__ import annotations

import contextlib
import os


def open_files(part: str) -> int:
    """Count the open files whose paths contain a text; others may close meanwhile."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # such as the listing's own, closed by now
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(part in target for target in targets)
