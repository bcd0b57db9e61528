"""The run that a command is about: opening it, what it is called, files that are made of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.terminal.output import echo
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.database import MultiEventDatabase

#: Signs of a run's name that a file's name keeps; others become dashes.
_SIGNS = "-_.+ "
_LONGEST = 200


def open_source(source: str) -> MultiEventDatabase:
    """Open a run; what Python would warn of is printed as a note."""
    from dasfprof.database import open_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = open_run(source)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    return database


def run_title(database: MultiEventDatabase, source: str) -> str:
    """Give what the files' headers call the run, else the source."""
    return _run_name(database) or Path(source).resolve().name


def file_for(title: str, ending: str) -> Path:
    """Give a path in the working directory that is named as a run."""
    stem = "".join(sign if sign.isalnum() or sign in _SIGNS else "-" for sign in title)
    return Path(f"{stem.lstrip('.-')[:_LONGEST] or 'run'}{ending}")


def _run_name(database: MultiEventDatabase) -> str | None:
    """Give the one name that the files' headers have; None where they name none, or several."""
    from dasfprof.database import FileDatabase

    names = {
        str(item.trace_file().read_header().get("run") or "")
        for item in database.databases
        if isinstance(item, FileDatabase)
    }
    return names.pop() or None if len(names) == 1 else None
