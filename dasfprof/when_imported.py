"""`WhenImported`: calls back when modules have been imported, which it does not import itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


class WhenImported:
    """The first finder of modules of this process, which finds none itself.

    Of the modules that it waits for, it has the loader that the others find call back after the
    module's code has run.

    Parameters
    ----------
    names
        The modules.
    call
        Called, without a right to raise, in the thread that imports, after each of them.
    """

    def __init__(self, names: tuple[str, ...], call: Callable[[], object]) -> None:
        self._names, self._call = names, call

    def start(self) -> None:
        """Wait for the modules."""
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Wait no longer. Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders find."""
        if name not in self._names:
            return None
        for finder in sys.meta_path.copy():
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    self._have_called_back(spec.loader)
                    return spec
        return None

    def _have_called_back(self, loader: Any) -> None:
        # Loaders of source files are made for one module, and have attributes of their own.
        own = getattr(loader, "__dict__", None)
        if own is None or "exec_module" in own or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            own.pop("exec_module", None)
            execute(module)
            self._call()

        own["exec_module"] = exec_module
