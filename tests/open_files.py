"""Open files of this process, as Linux lists them."""

import contextlib
import os


def open_files(part: str) -> int:
    """Count the open files whose paths contain a text. Files may close meanwhile."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(
            OSError
        ):  # such as the file of the listing itself, which is closed by now
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(part in target for target in targets)
