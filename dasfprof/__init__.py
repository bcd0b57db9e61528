"""dasfprof: a profiler native to Dask.

Record a run with `register_default_profiler(client)` or ``with profile(client):``, open its files
with `open_run` and analyse them with `TraceAnalyser`. `compare(before, after)` shows how a change
affected runs. `estimate(collection)` estimates the cost of a graph before it is computed.
`stuck(client)` finds out why the work of a live cluster does not finish, even if the cluster is not
recorded.

Names are loaded when they are first used, so that a worker never imports modules that only the
analysis needs. ``__init__.pyi`` lists the module of each name, for type checkers and for this
module.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import get_data
from typing import Any

from dasfprof import errors as errors

__version__ = "0.2.0"

#: Names that other programs look up in this module.
_HOOKS = {
    "load_ipython_extension": "dasfprof.jupyter",  # `%load_ext dasfprof`
    "dask_setup": "dasfprof.preload",  # `dask scheduler --preload dasfprof`
    "dask_teardown": "dasfprof.preload",
}
_STUB = (get_data(__name__, "__init__.pyi") or b"").decode()
_IMPORTS = re.findall(r"^from (dasfprof\.\S+) import (\w+)", _STUB, re.MULTILINE)
_MODULES = {name: module for module, name in _IMPORTS} | _HOOKS

__all__ = sorted({"__version__", *_MODULES} - _HOOKS.keys())  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dasfprof' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
