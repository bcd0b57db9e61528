"""From a `Trace` to a `Run`: task runs, threads and workers on one clock. Loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Run"]

if TYPE_CHECKING:
    from dasfprof.analysis.run.run import Run
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from dasfprof.analysis.run import run

        value = globals()[name] = getattr(run, name)
        return value
