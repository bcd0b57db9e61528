"""Functions pickled as source text, so that a process without dasfprof can run them.

Pickle refers to a function by its module, which such a process cannot import. cloudpickle sends
byte code instead, which is valid for one version of Python only. Source text is valid
everywhere, and every pickle can refer to the built-in `eval`.

As in `by_value`, but a function may use what else is in its module, and other modules of dasfprof,
as far as these import nothing but each other, Python's own modules, and Dask.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


class ByValue:
    """A function that is pickled as its source text, and can be called in this process, too.

    Parameters
    ----------
    function
        A plain function or coroutine function. It must import everything that it uses.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("exec(source) or eval(name)", _namespace(self._function))

    def reduce_call(self, *args: Any) -> tuple[Any, ...]:
        """Return the value of `__reduce__` for an object that a call of the function creates."""
        namespace = {**_namespace(self._function), "args": args}
        return eval, ("exec(source) or eval(name)(*args)", namespace)


def by_value(function: Callable[..., Any]) -> ByValue:
    """Return a function that is pickled as its source text; also a decorator."""
    return function if isinstance(function, ByValue) else ByValue(function)


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    return {
        "__name__": f"{function.__module__} (by value)",
        "name": function.__name__,
        "source": _source(function),
    }


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    lines = textwrap.dedent(inspect.getsource(function)).splitlines(keepends=True)
    while lines[0].startswith("@"):
        del lines[0]
    return "".join(("from __future__ import annotations\n", *lines))


_PACKAGE = "dasfprof"


class WithModules(ByValue):
    """A function at the top of a module, pickled with the source text of the modules it needs."""

    def __reduce__(self) -> tuple[Any, ...]:
        module = self._function.__module__
        return load_function.reduce_call(_sources(module), module, self._function.__name__)


@by_value
def load_function(sources: dict[str, str], module: str, name: str) -> Any:
    """Return a function of modules that are made of their source texts.

    Python's table of imported modules stays as it is: the modules import each other through an
    `__import__` of their own.
    """
    import builtins
    import types

    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            loaded[name] = types.ModuleType(f"{name} (by value)")
            loaded[name].__builtins__ = {**vars(builtins), "__import__": find}
            exec(compile(sources[name], f"<{name}>", "exec"), vars(loaded[name]))
        return loaded[name]

    def find(
        name: str, globals_: Any = None, locals_: Any = None, items: Any = (), level: int = 0
    ) -> Any:
        if name in sources:
            return load(name)
        parts = {item: f"{name}.{item}" for item in items or () if f"{name}.{item}" in sources}
        if parts:
            return types.SimpleNamespace(**{item: load(part) for item, part in parts.items()})
        return builtins.__import__(name, globals_, locals_, items, level)

    return getattr(load(module), name)


@functools.cache
def _sources(module: str) -> dict[str, str]:
    """Return the source texts of a module and of those of dasfprof that it imports."""
    found: dict[str, str] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = inspect.getsource(importlib.import_module(name))
            pending += _imports(found[name])
    return found


def _imports(source: str) -> list[str]:
    """Return the modules of dasfprof that a source text imports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PACKAGE}."):
            for item in node.names:
                whole = f"{node.module}.{item.name}"
                found.append(whole if _is_module(whole) else str(node.module))
    return found


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
