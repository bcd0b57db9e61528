"""The run that a command works on: its files, its name, and the names of what is written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dasfprof.report.terminal.output import echo
from dasfprof.text import clean

if TYPE_CHECKING:
    from dasfprof.analysis import TraceAnalyser
    from dasfprof.database import MultiEventDatabase


def open_source(source: str) -> MultiEventDatabase:
    """Open the files of a run; Python warnings are printed as notes."""
    from dasfprof.database import open_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = open_run(source)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    return database


def open_analyser(source: str) -> tuple[TraceAnalyser, str]:
    """Open a run for analysis; returns the analyser and the run's name, or that of the source."""
    database = open_source(source)  # a wrong source is an error before pandas is loaded
    from dasfprof import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(database)
    return analyser, title_of(analyser.trace, default=Path(source).resolve().name)
