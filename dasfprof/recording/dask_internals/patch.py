"""`Patch`: replaces one attribute of a module, class or object with a wrapper around it.

Wrappers take ``*args, **kwargs`` and pass them on unchanged, as the signatures of Dask's private
functions may change with each release. They read the arguments within their error handling.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from typing import Any, Generic, TypeVar

_ABSENT = object()
#: The attribute of a wrapper that holds its patch.
_PATCH = "_dasfprof_patch"

Listener = TypeVar("Listener")


class Patch:
    """Replaces an attribute from the creation of the patch until `remove`.

    Parameters
    ----------
    owner
        A module, a class (its own attribute, not an inherited one) or any other object.
    name
        The attribute.
    wrap
        Called with the original value (the function of a classmethod) and the patch; returns the
        wrapper. The wrapper must only pass calls on while the patch is not `active`: it stays in
        place after `remove` if other code has wrapped it.

    Raises
    ------
    AttributeError
        If there is no such attribute.
    """

    __slots__ = ("_before", "_name", "_ours", "_owner", "_was_declared", "active")

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any, Patch], Any]) -> None:
        self.active = True
        self._owner, self._name = owner, name
        before = _declared(owner, name)
        self._was_declared = before is not _ABSENT
        self._before = before if self._was_declared else getattr(owner, name)
        if isinstance(before, classmethod | staticmethod):
            self._ours: Any = type(before)(self._wrapper(before.__func__, wrap))
        else:
            self._ours = self._wrapper(self._before, wrap)
        setattr(owner, name, self._ours)

    def _wrapper(self, original: Any, wrap: Callable[[Any, Patch], Any]) -> Any:
        wrapper = functools.update_wrapper(wrap(original, self), original)
        setattr(wrapper, _PATCH, self)
        return wrapper

    def remove(self) -> None:
        """Restore the original value, unless other code has wrapped ours since. Idempotent."""
        if not self.active:
            return
        self.active = False
        if _declared(self._owner, self._name) is not self._ours:
            return
        bottom = self
        while (below := _patch_of(bottom._before)) is not None and not below.active:
            bottom = below  # It was removed while ours was wrapped around it.
        if bottom._was_declared:
            setattr(self._owner, self._name, bottom._before)
        else:
            delattr(self._owner, self._name)


def _declared(owner: Any, name: str) -> Any:
    """Return an attribute that is not inherited, unless the object has slots."""
    attributes = getattr(owner, "__dict__", None)
    if attributes is None:
        return getattr(owner, name, _ABSENT)
    return attributes.get(name, _ABSENT)


def _patch_of(value: Any) -> Patch | None:
    """Return the patch whose wrapper a value is, or None."""
    patch = getattr(getattr(value, "__func__", value), _PATCH, None)
    return patch if isinstance(patch, Patch) and patch._ours is value else None


def unpatched(value: Any) -> Any:
    """Return a function without the wrappers of patches, removed or not."""
    while (patch := _patch_of(value)) is not None:
        value = patch._before
    return value


def takes(function: Any, *parameters: str) -> bool:
    """Return whether a function has exactly these parameters."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return [(item.name, item.kind) for item in known] == [
        (name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parameters
    ]


class Entries:
    """Shows the entries of a dict as attributes, so that a `Patch` can replace one of them."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.__dict__ = entries


#: An object, the name of its attribute, and the function that returns the wrapper.
Hook = tuple[Any, str, Callable[[Any, Patch], Any]]


class SharedPatches:
    """Patches with several users in a process. The first places them, and the last removes them.

    Parameters
    ----------
    hooks
        Returns the hooks, for the first user and for `place_more`. Hooks that are placed already
        and missing attributes are left out.
    removed
        Called after the last user has left and the patches are removed.
    """

    def __init__(
        self, hooks: Callable[[], Iterable[Hook]], removed: Callable[[], object] = lambda: None
    ) -> None:
        self._hooks, self._removed = hooks, removed
        self._patches: dict[tuple[Any, str], Patch] = {}
        self._users = 0
        self._lock = threading.RLock()

    def enter(self) -> None:
        """Use the patches. Each call must be undone by a call of `leave`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._place()

    def place_more(self) -> None:
        """Place further patches, for example of a module that was not imported before."""
        with self._lock:
            if self._users:
                self._place()

    def _place(self) -> None:
        for owner, name, wrap in self._hooks():
            exists = owner is not None and hasattr(owner, name)
            if exists and (owner, name) not in self._patches:
                with contextlib.suppress(AttributeError, TypeError):  # It accepts no attributes.
                    self._patches[owner, name] = Patch(owner, name, wrap)

    def wraps(self, owner: Any) -> bool:
        """Return whether anything of a class or module is wrapped."""
        return any(owner is other for other, _ in self._patches)

    def leave(self) -> None:
        """Stop using the patches."""
        with self._lock:
            self._users -= 1
            if not self._users:
                while self._patches:
                    self._patches.popitem()[1].remove()
                self._removed()


class SharedListeners(SharedPatches, Generic[Listener]):
    """Listeners that use the same patches, which are placed while there are any."""

    #: Replaced as a whole, because wrappers iterate over it in any thread without a lock.
    all: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. Return the function that removes it."""
        with self._lock:
            self.all = (*self.all, listener)
            self.enter()
        return functools.partial(self._remove, listener)

    def _remove(self, listener: Listener) -> None:
        with self._lock:
            self.all = tuple(other for other in self.all if other is not listener)
            self.leave()


class WhenImported:
    """Calls a function when the program has imported modules.

    It is the first of this process's finders of modules. It wraps the loaders that other finders
    return for these modules.

    Parameters
    ----------
    names
        The modules.
    call
        Called after each of them, in the importing thread. Must not raise.
    """

    def __init__(self, names: tuple[str, ...], call: Callable[[], object]) -> None:
        self._names, self._call = names, call

    def start(self) -> None:
        """Wait for the modules. Idempotent."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Wait no longer. Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the result of the other finders."""
        if name not in self._names:
            return None
        for finder in sys.meta_path.copy():
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    self._wrap(spec.loader)
                    return spec
        return None

    def _wrap(self, loader: Any) -> None:
        # Each loader of a source file is used for one module only, and accepts attributes.
        attributes = getattr(loader, "__dict__", None)
        if attributes is None or "exec_module" in attributes or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            attributes.pop("exec_module", None)
            execute(module)
            self._call()

        attributes["exec_module"] = exec_module
