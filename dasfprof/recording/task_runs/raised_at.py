"""Where an exception was raised: the line of a traceback that its reader can change."""

from __future__ import annotations

import re
import sysconfig

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
#: Libraries: those of Python, and those that are installed.
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_INSTALLED = ("/site-packages/", "/dist-packages/")


def raised_at(traceback: str | None) -> str | None:
    """Return the last line of user code of a traceback's text; without any, its last line.

    It is written ``file:line function``.
    """
    frames = _FRAME.findall(traceback or "")
    if not frames:
        return None
    own = [frame for frame in frames if not of_library(frame[0])]
    path, line, function = (own or frames)[-1]
    return f"{path}:{line} {function}"


def of_library(path: str) -> bool:
    """Return whether a file is of Python or of an installed package."""
    return path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED)
