"""dasfprof: a profiler native to Dask.

Record a run with `register_default_profiler(client)` or ``with profile(client):``, open its files
with `open_run` and analyse them with `TraceAnalyser`. Names are loaded when they are first used, so
that a worker never imports what only the analysis needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_PUBLIC = {
    "dasfprof.analysis": ("Trace", "TraceAnalyser"),
    "dasfprof.database": ("EventProfiler", "FileDatabase", "MultiEventDatabase", "open_run"),
    "dasfprof.errors": (
        "CannotWriteError",
        "DasfprofError",
        "InvalidArgumentError",
        "MissingExtraError",
        "NoClientError",
        "NotATraceError",
        "ReadOnlyError",
        "RegistrationError",
        "SourceNotFoundError",
        "TraceError",
    ),
    "dasfprof.schema.events": (
        "CompleteEvent",
        "DurationBeginEvent",
        "DurationEndEvent",
        "InstantEvent",
    ),
    "dasfprof.recording": ("ProfiledRun", "profile", "register_default_profiler", "step"),
    "dasfprof.report.formats.export": ("export",),
    "dasfprof.report.page.html": ("write_report",),
}
#: Names that other programs, and lower floors of the package, look up in this module.
_HOOKS = {
    "dasfprof.jupyter": ("load_ipython_extension",),  # `%load_ext dasfprof`
    "dasfprof.preload": ("dask_setup", "dask_teardown"),  # `dask worker --preload dasfprof`
    "dasfprof.report.notebook": ("analyser_html",),  # the analyser's display in a notebook
}
_MODULES = {name: module for part in (_PUBLIC, _HOOKS) for module in part for name in part[module]}

__all__ = [
    "CannotWriteError",
    "CompleteEvent",
    "DasfprofError",
    "DurationBeginEvent",
    "DurationEndEvent",
    "EventProfiler",
    "FileDatabase",
    "InstantEvent",
    "InvalidArgumentError",
    "MissingExtraError",
    "MultiEventDatabase",
    "NoClientError",
    "NotATraceError",
    "ProfiledRun",
    "ReadOnlyError",
    "RegistrationError",
    "SourceNotFoundError",
    "Trace",
    "TraceAnalyser",
    "TraceError",
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
    from dasfprof.errors import (
        CannotWriteError,
        DasfprofError,
        InvalidArgumentError,
        MissingExtraError,
        NoClientError,
        NotATraceError,
        ReadOnlyError,
        RegistrationError,
        SourceNotFoundError,
        TraceError,
    )
    from dasfprof.recording import ProfiledRun, profile, register_default_profiler, step
    from dasfprof.report.formats.export import export
    from dasfprof.report.notebook import analyser_html as analyser_html
    from dasfprof.report.page.html import write_report
    from dasfprof.schema.events import (
        CompleteEvent,
        DurationBeginEvent,
        DurationEndEvent,
        InstantEvent,
    )
else:  # with `__getattr__`, a type checker would accept any misspelt name

    def __getattr__(name):
        try:
            module = _MODULES[name]
        except KeyError:
            raise AttributeError(f"module 'dasfprof' has no attribute {name!r}") from None
        value = globals()[name] = getattr(import_module(module), name)
        return value


def __dir__() -> list[str]:
    return __all__
