"""From trace files to `Trace`: a recorded run as tables. They are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Database", "Source", "Trace"]

if TYPE_CHECKING:
    from dasfprof.analysis.trace.trace import Database, Source, Trace
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from dasfprof.analysis.trace import trace

        value = globals()[name] = getattr(trace, name)
        return value
