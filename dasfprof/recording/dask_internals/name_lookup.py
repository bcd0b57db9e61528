"""`DaskName`: one private name of Dask, and whether this Dask has it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(eq=False)
class DaskName:
    """A private name of Dask."""

    #: The module and, after a colon, the name in it, such as ``Class.attribute``.
    path: str
    #: The plugins that use it, by their names in the headers of files.
    plugins: tuple[str, ...]
    purpose: str
    #: What a trace lacks without the name.
    loss: str
    #: Whether programs may run without the module: then the look-up does not import it.
    optional_module: bool = False

    @property
    def attribute(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(":")[2].rpartition(".")[2]

    def find(self) -> Any:
        """Return the object of that name; None if it is missing or its module not imported."""
        found = self._look_up()
        return None if found is _ABSENT else found

    def owner(self) -> Any:
        """Return the class that has it, as its path says; None if that is missing."""
        return DaskName(self.path.rpartition(".")[0], (), "", "", self.optional_module).find()

    def exists(self) -> bool:
        """Return whether Dask has the name; True if an optional module is not imported."""
        module = self.path.partition(":")[0]
        if self.optional_module and module not in sys.modules:
            return True
        return self._look_up() is not _ABSENT

    def _look_up(self) -> Any:
        module, _, names = self.path.partition(":")
        try:
            found: Any = sys.modules.get(module)
            if found is None:
                found = _ABSENT if self.optional_module else importlib.import_module(module)
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
