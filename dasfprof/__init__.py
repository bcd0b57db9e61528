"""dasfprof: a profiler native to Dask.

Record a run with `register_default_profiler(client)` or ``with profile(client):``; open its files
with `open_run`; ask questions with `TraceAnalyser`. Names are loaded when they are first used, so
that a worker never imports what only the analysis needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "CompleteEvent": "dasfprof.events",
    "DurationBeginEvent": "dasfprof.events",
    "DurationEndEvent": "dasfprof.events",
    "InstantEvent": "dasfprof.events",
    "EventProfiler": "dasfprof.database",
    "FileDatabase": "dasfprof.database",
    "MultiEventDatabase": "dasfprof.database",
    "open_run": "dasfprof.database",
    "profile": "dasfprof.recording",
    "register_default_profiler": "dasfprof.recording",
    "step": "dasfprof.recording",
    # What `--preload dasfprof` asks the module for; `dasfprof.preload` is the same.
    "dask_setup": "dasfprof.preload",
    "dask_teardown": "dasfprof.preload",
    # What `%load_ext dasfprof` asks it for.
    "load_ipython_extension": "dasfprof.jupyter",
    "Trace": "dasfprof.analysis",
    "TraceAnalyser": "dasfprof.analysis",
    "analyser_html": "dasfprof.report.notebook",  # for the analyser's own display
    "export": "dasfprof.report.formats.export",
    "write_report": "dasfprof.report.page.html",
}

__all__ = [
    "CompleteEvent",
    "DurationBeginEvent",
    "DurationEndEvent",
    "EventProfiler",
    "FileDatabase",
    "InstantEvent",
    "MultiEventDatabase",
    "Trace",
    "TraceAnalyser",
    "__version__",
    "export",
    "open_run",
    "profile",
    "register_default_profiler",
    "step",
    "write_report",
]

if TYPE_CHECKING:
    from dasfprof.analysis import Trace, TraceAnalyser
    from dasfprof.database import EventProfiler, FileDatabase, MultiEventDatabase, open_run
    from dasfprof.events import (
        CompleteEvent,
        DurationBeginEvent,
        DurationEndEvent,
        InstantEvent,
    )
    from dasfprof.recording import profile, register_default_profiler, step
    from dasfprof.report.formats.export import export
    from dasfprof.report.page.html import write_report


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'dasfprof' has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
