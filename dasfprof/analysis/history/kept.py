"""Summaries of runs, kept in a file beside the runs' own.

A summary holds as long as no file of its run has another size or time of change. The file is
written by who analyses, never while recording; where it cannot be written, or is no longer
readable, runs are summed up again.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

#: The file's name; nobody takes it for a trace.
FILE = ".dasfprof-history.json"
#: Of what is in it; files of others are not read.
_VERSION = 1

#: Size and time of change, in ns, of each file of a run, by its name.
State = dict[str, list[int]]


def file_states(directory: Path) -> State:
    """Return the states of the files in a directory that may be traces."""
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".msgpack") and entry.is_file():
                facts = entry.stat()
                found[entry.name] = [facts.st_size, facts.st_mtime_ns]
    return found


def read_kept(directory: Path, states: State) -> list[tuple[State, dict[str, Any]]]:
    """Return the files and the summary of each run whose files are as they were."""
    try:
        kept = json.loads((directory / FILE).read_text(encoding="utf-8"))
        if kept["version"] != _VERSION:
            return []
        return [
            (dict(run["files"]), dict(run["summary"]))
            for run in kept["runs"]
            if run["files"] and all(states.get(name) == was for name, was in run["files"].items())
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def keep(directory: Path, runs: list[tuple[State, dict[str, Any]]]) -> None:
    """Write summaries; a reader sees the old file or the new one."""
    text = json.dumps(
        {
            "version": _VERSION,
            "runs": [{"files": files, "summary": summary} for files, summary in runs],
        }
    )
    try:
        number, name = tempfile.mkstemp(dir=directory, prefix=FILE)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(directory / FILE)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError:  # a directory that is only to be read, a full disk
        logger.debug("cannot keep the summaries of %s", directory, exc_info=True)
