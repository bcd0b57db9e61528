"""dasfprof: a profiler native to Dask.

Record a run with `register_default_profiler(client)` or ``with profile(client):``, open its files
with `open_run` and analyse them with `TraceAnalyser`; `compare(before, after)` says what a change
did to runs. `stuck(client)` finds why the work of a live cluster does not end, recorded or not.
Names are loaded when they are first used, so that a worker never imports what only the analysis
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_PUBLIC = {
    "dasfprof.analysis": ("Trace", "TraceAnalyser"),
    "dasfprof.analysis.comparison": ("compare",),
    "dasfprof.analysis.history": ("history",),
    "dasfprof.database": ("EventProfiler", "FileDatabase", "MultiEventDatabase", "open_run"),
    "dasfprof.errors": (
        "BeyondMemoryError",
        "CannotWriteError",
        "DasfprofError",
        "DumpError",
        "InvalidArgumentError",
        "MissingExtraError",
        "NoClientError",
        "NoSchedulerError",
        "NotATraceError",
        "ReadOnlyError",
        "RegistrationError",
        "SourceNotFoundError",
        "TraceError",
        "UnknownOptionError",
    ),
    "dasfprof.schema.events": (
        "CompleteEvent",
        "DurationBeginEvent",
        "DurationEndEvent",
        "InstantEvent",
    ),
    "dasfprof.inspection": ("stuck",),
    "dasfprof.recording": ("ProfiledRun", "profile", "register_default_profiler", "step"),
    "dasfprof.report.formats.export": ("export",),
    "dasfprof.report.page.html": ("write_report",),
}
#: Names that other programs, and lower floors of the package, look up in this module.
_HOOKS = {
    "dasfprof.jupyter": ("load_ipython_extension",),  # `%load_ext dasfprof`
    "dasfprof.preload": ("dask_setup", "dask_teardown"),  # `dask worker --preload dasfprof`
    "dasfprof.analysis.live": ("LiveRun",),  # the run's handle asks it
    "dasfprof.jupyter.live": ("LiveView",),  # the same
    "dasfprof.report.notebook": ("analyser_html",),  # the analyser's display in a notebook
    "dasfprof.report.page.comparison.html": ("write_comparison",),  # the comparison asks it
}
_MODULES = {name: module for part in (_PUBLIC, _HOOKS) for module in part for name in part[module]}

__all__ = [
    "BeyondMemoryError",
    "CannotWriteError",
    "CompleteEvent",
    "DasfprofError",
    "DumpError",
    "DurationBeginEvent",
    "DurationEndEvent",
    "EventProfiler",
    "FileDatabase",
    "InstantEvent",
    "InvalidArgumentError",
    "MissingExtraError",
    "MultiEventDatabase",
    "NoClientError",
    "NoSchedulerError",
    "NotATraceError",
    "ProfiledRun",
    "ReadOnlyError",
    "RegistrationError",
    "SourceNotFoundError",
    "Trace",
    "TraceAnalyser",
    "TraceError",
    "UnknownOptionError",
    "__version__",
    "compare",
    "export",
    "history",
    "open_run",
    "profile",
    "register_default_profiler",
    "step",
    "stuck",
    "write_report",
]

if TYPE_CHECKING:
    from dasfprof.analysis import Trace, TraceAnalyser
    from dasfprof.analysis.comparison import compare
    from dasfprof.analysis.history import history
    from dasfprof.analysis.live import LiveRun as LiveRun
    from dasfprof.database import EventProfiler, FileDatabase, MultiEventDatabase, open_run
    from dasfprof.errors import (
        BeyondMemoryError,
        CannotWriteError,
        DasfprofError,
        DumpError,
        InvalidArgumentError,
        MissingExtraError,
        NoClientError,
        NoSchedulerError,
        NotATraceError,
        ReadOnlyError,
        RegistrationError,
        SourceNotFoundError,
        TraceError,
        UnknownOptionError,
    )
    from dasfprof.inspection import stuck
    from dasfprof.jupyter.live import LiveView as LiveView
    from dasfprof.recording import ProfiledRun, profile, register_default_profiler, step
    from dasfprof.report.formats.export import export
    from dasfprof.report.notebook import analyser_html as analyser_html
    from dasfprof.report.page.comparison.html import write_comparison as write_comparison
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
