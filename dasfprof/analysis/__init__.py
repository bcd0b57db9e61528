"""Analysis of recorded runs. `Trace` contains a run as tables, and `Analyser` has all analyses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["Analyser", "Trace"]

_MODULES = {"Trace": "dasfprof.analysis.trace", "Analyser": "dasfprof.analysis.analyser"}

if TYPE_CHECKING:
    from dasfprof.analysis.analyser import Analyser
    from dasfprof.analysis.trace import Trace
else:

    def __getattr__(name):  # `under_way` does not need pandas.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
