"""`Tracebacks`: the whole traceback of each failed attempt, as text."""

from __future__ import annotations

import re
import sysconfig
from typing import Any

from dasfprof.recording.notes.rows import FileRows
from dasfprof.schema.tasks import TRACEBACK

#: The most tracebacks of a worker, and the characters of their begin and end that are kept.
MOST, BEGIN, END = 1000, 2000, 6000
#: How a line of a traceback begins that says where, not what.
_PLACE = '  File "'


class Tracebacks:
    """Writes the tracebacks of task runs of a worker.

    Parameters
    ----------
    rows
        Of the file of the plugin.
    with_code
        Whether the lines of the source are written.
    """

    def __init__(self, rows: FileRows, with_code: bool) -> None:
        self._rows = rows
        self._with_code = with_code
        self._written = 0

    def see(self, key: Any, run_id: int | None, text: str | None) -> None:
        """Write the traceback of a failed task run, if there is any."""
        if not text:
            return
        if self._written >= MOST:
            self._rows.losses.add("too many tracebacks")
            return
        self._written += 1
        if not self._with_code:
            lines = text.splitlines(keepends=True)
            text = "".join(line for line in lines if line.startswith(_PLACE))
        if len(text) > BEGIN + END:
            left_out = len(text) - BEGIN - END
            text = f"{text[:BEGIN]}\n  ... {left_out} characters ...\n{text[-END:]}"
        self._rows.write(TRACEBACK, {"key": key, "run_id": run_id, "text": text})


# --- Where an exception was raised: the line of a traceback that its reader can change ------------

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
