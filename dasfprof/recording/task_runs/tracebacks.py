"""`Tracebacks`: the whole traceback of each failed attempt, as text."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.under_way.rows import UnderWayRows
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

    def __init__(self, rows: UnderWayRows, with_code: bool) -> None:
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
