"""`Patch`: replaces one attribute of a module, class or object with a wrapper around it.

Wrappers accept ``*args, **kwargs`` and pass them on unchanged, because the signatures of Dask's
private functions may change with each release. Wrappers handle errors that occur when they read the
arguments.
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
#: Name of the attribute of a wrapper that refers to its patch.
_PATCH = "_dasfprof_patch"

Listener = TypeVar("Listener")

#: Held while patches are placed or removed.
_changing = threading.RLock()


class Patch:
    """Replaces an attribute from the creation of the patch until `remove`.

    Parameters
    ----------
    owner
        A module, a class or any other object. If a class inherits the attribute, the base class is
        not changed.
    name
        The name of the attribute.
    wrap
        Called with the original value (for a classmethod, with its function) and the patch. Returns
        the wrapper. While the patch is not `active`, the wrapper must only pass calls on, because
        it stays in place after `remove` if other code has wrapped it.

    Raises
    ------
    AttributeError
        If the owner has no such attribute.
    """

    __slots__ = ("_before", "_name", "_ours", "_owner", "_was_declared", "_wrap", "active")

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any, Patch], Any]) -> None:
        self.active = True
        self._owner, self._name = owner, name
        self._wrap: Any = wrap
        with _changing:
            before = _declared(owner, name)
            is_declared = before is not _ABSENT
            self._place_around(before if is_declared else getattr(owner, name), is_declared)
            setattr(owner, name, self._ours)

    def _place_around(self, before: Any, was_declared: bool) -> None:
        """Create the wrapper around a value.

        `was_declared` is whether the owner itself declares the value, instead of inheriting it.
        """
        self._before, self._was_declared = before, was_declared
        if was_declared and isinstance(before, classmethod | staticmethod):
            self._ours: Any = type(before)(self._wrapper(before.__func__))
        else:
            self._ours = self._wrapper(before)

    def _wrapper(self, original: Any) -> Any:
        wrapper = functools.update_wrapper(self._wrap(original, self), original)
        setattr(wrapper, _PATCH, self)
        return wrapper

    def remove(self) -> None:
        """Remove the wrapper, unless other code has wrapped it. Idempotent."""
        with _changing:
            if not self.active:
                return
            self.active = False
            around: list[Patch] = []
            value = _declared(self._owner, self._name)
            while value is not self._ours:
                patch = _patch_of(value)
                if patch is None:
                    return
                around.append(patch)
                value = patch._before
            bottom = self
            while (below := _patch_of(bottom._before)) is not None and not below.active:
                bottom = below  # It was removed while other code had wrapped it.
            value, was_declared = bottom._before, bottom._was_declared
            # The wrappers of other patches are placed again around the value that this wrapper
            # replaced. Otherwise, the chain of wrappers would grow with each run.
            for patch in reversed(around):
                patch._place_around(value, was_declared)
                value, was_declared = patch._ours, True
            if was_declared:
                setattr(self._owner, self._name, value)
            else:
                delattr(self._owner, self._name)
            # The wrapper refers to this patch. Without a cycle, both are freed at once.
            self._ours, self._wrap = id(self._ours), None


def _declared(owner: Any, name: str) -> Any:
    """Return an attribute of an object, or `_ABSENT` if the object only inherits it or lacks it."""
    attributes = getattr(owner, "__dict__", None)
    # The object has slots.
    if attributes is None:
        return getattr(owner, name, _ABSENT)
    return attributes.get(name, _ABSENT)


def _patch_of(value: Any) -> Patch | None:
    """Return the patch to which a wrapper belongs, or None if the value is not a wrapper."""
    patch = getattr(getattr(value, "__func__", value), _PATCH, None)
    return patch if isinstance(patch, Patch) and patch._ours in (value, id(value)) else None


def unpatched(value: Any) -> Any:
    """Return the original function, without any wrappers of patches around it."""
    while (patch := _patch_of(value)) is not None:
        value = patch._before
    return value


def takes(function: Any, *parameters: str) -> bool:
    """Return whether a function has exactly these parameters, each by position or keyword."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return [(item.name, item.kind) for item in known] == [
        (name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parameters
    ]


class Entries:
    """Shows the entries of a dict as attributes, so that a `Patch` can replace an entry."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.__dict__ = entries


#: A hook: an object, the name of its attribute, and the function that returns the wrapper.
Hook = tuple[Any, str, Callable[[Any, Patch], Any]]


class SharedPatches:
    """Patches that their first user in a process places, and that their last user removes.

    Parameters
    ----------
    hooks
        Returns the hooks. A hook is an object, the name of an attribute, and a function that wraps
        the attribute. Called for the first user and by `place_more`. Hooks that are already placed,
        and hooks on missing attributes, are left out.
    removed
        Called when the last user has left, after the patches are removed.
    """

    def __init__(
        self, hooks: Callable[[], Iterable[Hook]], removed: Callable[[], object] = lambda: None
    ) -> None:
        self._hooks, self._removed = hooks, removed
        self._patches: dict[tuple[Any, str], Patch] = {}
        self._users = 0
        self._lock = threading.RLock()

    def enter(self) -> None:
        """Start using the patches. Each call must be undone by a call of `leave`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._place()

    def place_more(self) -> None:
        """Place further patches, for example on a module that the program has imported since."""
        with self._lock:
            if self._users:
                self._place()

    def _place(self) -> None:
        for owner, name, wrap in self._hooks():
            exists = owner is not None and hasattr(owner, name)
            if exists and (owner, name) not in self._patches:
                with contextlib.suppress(AttributeError, TypeError):  # The owner is read-only.
                    self._patches[owner, name] = Patch(owner, name, wrap)

    def wraps(self, owner: Any) -> bool:
        """Return whether any attribute of a class or module is wrapped."""
        return any(owner is other for other, _ in self._patches)

    def leave(self) -> None:
        """Stop using the patches. The last user removes them."""
        with self._lock:
            self._users -= 1
            if not self._users:
                while self._patches:
                    self._patches.popitem()[1].remove()
                self._removed()


class SharedListeners(SharedPatches, Generic[Listener]):
    """Listeners that use the same patches, which are placed while there are listeners."""

    #: A change replaces the tuple, because wrappers in any thread iterate over it without a lock.
    all: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener, and return the function that removes it."""
        with self._lock:
            self.all = (*self.all, listener)
            self.enter()
        return functools.partial(self._remove, listener)

    def _remove(self, listener: Listener) -> None:
        with self._lock:
            self.all = tuple(other for other in self.all if other is not listener)
            self.leave()


class WhenImported:
    """Calls a function each time the program has imported one of several modules.

    Parameters
    ----------
    names
        The names of the modules.
    call
        Called after each module is imported, in the importing thread. Must not raise.
    """

    def __init__(self, names: tuple[str, ...], call: Callable[[], object]) -> None:
        self._names, self._call = names, call

    def start(self) -> None:
        """Start to wait for imports of the modules. Idempotent."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Stop waiting for imports. Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module with the other finders, and wrap the module's loader."""
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
        # A loader of a source file is used for only one module, and accepts attributes.
        attributes = getattr(loader, "__dict__", None)
        if attributes is None or "exec_module" in attributes or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            attributes.pop("exec_module", None)
            execute(module)
            self._call()

        attributes["exec_module"] = exec_module
