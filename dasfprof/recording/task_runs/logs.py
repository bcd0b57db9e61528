"""Recorders of the log records of task runs, exceptions that workers log, and tracebacks."""

from __future__ import annotations

import logging
import re
import sysconfig
from collections.abc import Callable
from functools import partial
from typing import Any

from dasfprof.recording.dask_internals.task_logs import listen
from dasfprof.recording.rows import FileRows
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.task_runs.results import type_name
from dasfprof.schema.tasks import LOG_RECORD, TRACEBACK, WORKER_ERROR

#: Maximum number of characters of a recorded message.
_LONGEST = 500
#: Maximum number of log records per worker, not counting the first error of each task run.
MOST = 10_000
#: Maximum number of recorded errors that a worker logs outside of tasks.
_MOST_ERRORS = 100
#: Types of values that can be formatted without a call of the program's code.
_PLAIN = (str, int, float, bool, type(None))


def watch_logs(worker: Any, settings: RunSettings, rows: FileRows) -> Callable[[], object]:
    """Record the log records of a worker's task runs, and exceptions that Dask logs.

    Return a function that ends this.

    Parameters
    ----------
    settings
        The settings of the run, including the minimum level, and whether to record values.
    rows
        Writes rows into the plugin's file.
    """
    written = errors = 0
    too_many = partial(rows.writer.losses.add, "too many logs")

    def write(key: Any, run_id: int, record: logging.LogRecord, is_first_error: bool) -> None:
        nonlocal written, errors
        if key is None:
            errors += 1
            if errors <= _MOST_ERRORS:
                rows.write(WORKER_ERROR, {"logger": record.name, "exception": _error(record)})
            return
        written += not is_first_error
        if written > MOST and not is_first_error:
            too_many()
            return
        kind = record.exc_info[0] if record.exc_info else None
        rows.write(
            LOG_RECORD,
            {
                "key": key,
                "run_id": run_id,
                "logger": record.name,
                "level": record.levelname,
                "message": _message(record, settings.log_values)[:_LONGEST],
                "exception": None if kind is None else type_name(kind),
                "line": f"{record.pathname}:{record.lineno} {record.funcName}",
                "error": int(is_first_error),
            },
        )

    return listen(worker, settings.log_level, write, too_many, rows.guard)


def _error(record: logging.LogRecord) -> str:
    """Return the type and the text of the exception of a log record."""
    error = record.exc_info[1] if record.exc_info else None
    return f"{type(error).__name__}: {error}"[:_LONGEST]


def _message(record: logging.LogRecord, with_values: bool) -> str:
    """Return the message of a log record, with its values or without."""
    if type(record.msg) is not str:
        return type_name(type(record.msg))
    args = record.args
    values = args.values() if isinstance(args, dict) else args
    # Values may be secrets. A value that is not plain would call code of its class.
    if with_values and values and all(type(value) in _PLAIN for value in values):
        return record.getMessage()
    return record.msg


#: Maximum number of tracebacks per worker, and of characters of a traceback's start and of its end.
MOST_TRACEBACKS, BEGIN, END = 1000, 2000, 6000
#: Start of those lines of a traceback that name a file and a line.
_PLACE = '  File "'


class Tracebacks:
    """Writes the tracebacks of a worker's failed task runs to a file.

    Parameters
    ----------
    rows
        Writes rows into the plugin's file.
    with_code
        Whether to write the lines of source code in tracebacks.
    """

    def __init__(self, rows: FileRows, with_code: bool) -> None:
        self._rows = rows
        self._with_code = with_code
        self._written = 0

    def record(self, key: Any, run_id: int | None, text: str | None) -> None:
        """Write the traceback of a failed task run. Do nothing if `text` is empty."""
        if not text:
            return
        if self._written >= MOST_TRACEBACKS:
            self._rows.writer.losses.add("too many tracebacks")
            return
        self._written += 1
        if not self._with_code:
            lines = text.splitlines(keepends=True)
            text = "".join(line for line in lines if line.startswith(_PLACE))
        if len(text) > BEGIN + END:
            left_out = len(text) - BEGIN - END
            text = f"{text[:BEGIN]}\n  ... {left_out} characters ...\n{text[-END:]}"
        self._rows.write(TRACEBACK, {"key": key, "run_id": run_id, "text": text})


_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
#: Starts of the paths of libraries: the standard library and installed packages.
_LIBRARIES = (
    "<frozen ",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
_INSTALLED = ("/site-packages/", "/dist-packages/")


def raised_at(traceback: str | None) -> str | None:
    """Return where user code raised an exception, as ``file:line function``, or None if unknown."""
    frames = _FRAME.findall(traceback or "")
    if not frames:
        return None
    # If the traceback has no user code, its last line counts.
    users = [frame for frame in frames if not of_library(frame[0])]
    path, line, function = (users or frames)[-1]
    return f"{path}:{line} {function}"


def of_library(path: str) -> bool:
    """Return whether a file belongs to the standard library or an installed package."""
    return path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED)
