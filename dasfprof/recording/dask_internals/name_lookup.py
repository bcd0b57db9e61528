"""`Names`: private names of Dask with one purpose, and whether this Dask has them.

A module is imported when a name in it is looked up, and looking up never raises.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_ABSENT = object()


class Names:
    """Private names of Dask, of which a trace lacks the same where one is gone.

    Parameters
    ----------
    loss
        What a trace lacks.
    plugins
        Those that use them, by their names in the headers of files.
    *paths
        Modules and, after a colon, the name in it, such as ``Class.attribute``.
    is_imported
        Whether to import modules: programs may run without those where it is False.
    """

    def __init__(
        self, loss: str, plugins: tuple[str, ...], *paths: str, is_imported: bool = True
    ) -> None:
        self.loss, self.plugins, self.paths = loss, plugins, paths
        self._is_imported = is_imported

    def find(self, name: str) -> Any:
        """Return the object of a name, or of its class; None if missing, or not imported."""
        for path in self.paths:
            module, _, inside = path.partition(":")
            if f"{inside}.".startswith(f"{name}."):
                found = self._look_up(module, name)
                return None if found is _ABSENT else found
        return None

    def exist(self) -> bool:
        """Return whether Dask has all of them; True if their module is not imported."""
        return not self.gone()

    def gone(self) -> list[str]:
        """Return the paths of those that Dask does not have."""
        return [path for path in self.paths if self._is_gone(*path.split(":"))]

    def _is_gone(self, module: str, name: str) -> bool:
        is_known = self._is_imported or module in sys.modules
        return is_known and self._look_up(module, name) is _ABSENT

    def _look_up(self, module: str, names: str) -> Any:
        try:
            found: Any = sys.modules.get(module)
            if found is None:
                found = importlib.import_module(module) if self._is_imported else _ABSENT
        except Exception:
            return _ABSENT
        for name in names.split("."):
            found = _member(found, name)
        return found


def _member(owner: Any, name: str) -> Any:
    """Return an attribute of a class; for attributes of instances, what declares them."""
    found = getattr(owner, name, _ABSENT)
    if found is _ABSENT and isinstance(owner, type):
        for base in owner.__mro__:
            annotations = vars(base).get("__annotations__", {})
            if name in annotations:
                return annotations[name]
            for method in ("__new__", "__init__"):  # which set it on instances
                made = vars(base).get(method)
                code = getattr(getattr(made, "__func__", made), "__code__", None)
                if code is not None and name in code.co_names:
                    return made
    return found
