"""Functions that are pickled as source text, so that a process without dasfprof can run them.

Pickle refers to a function by the name of its module, but a process without dasfprof cannot import
that module. cloudpickle sends byte code instead, which is valid for one version of Python only.
Source text is valid in every version, and every process can unpickle the built-in `eval`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle


class ByValue:
    """A function that is pickled as its source text, and that can also be called in this process.

    Parameters
    ----------
    function
        A plain function or coroutine function. Its body must import everything that it uses.
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
        """Return the value for the `__reduce__` of an object.

        Unpickling the object then calls this function with the given arguments, and yields the
        result.
        """
        namespace = {**_namespace(self._function), "args": args}
        return eval, ("exec(source) or eval(name)(*args)", namespace)


def by_value(function: Callable[..., Any]) -> ByValue:
    """Decorate a function, so that it is pickled as its source text."""
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


class WithModules(ByValue):
    """A function that is pickled together with the functions and classes of dasfprof that it uses.

    The pickle contains byte code, so the other process needs the same minor version of Python. The
    function must not refer to a module of dasfprof itself, because cloudpickle would include
    everything in that module.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return load_function.reduce_call(_pickled(self._function), tuple(sys.version_info[:2]))


@by_value
def load_function(pickled: bytes, version: tuple[int, int]) -> Any:
    """Unpickle a function, or raise an error if another version of Python pickled it."""
    import pickle
    import sys

    # Byte code of another version could crash this process.
    if sys.version_info[:2] != version:
        client, here = (f"{major}.{minor}" for major, minor in (version, sys.version_info[:2]))
        raise RuntimeError(f"it has Python {here}, but the process that asks has {client}")
    return pickle.loads(pickled)


#: Lock for registering the package with cloudpickle. The registration is global, so it also affects
#: what other threads pickle.
_registering = threading.Lock()


@functools.cache
def _pickled(function: Callable[..., Any]) -> bytes:
    package = sys.modules["dasfprof"]
    with _registering:
        cloudpickle.register_pickle_by_value(package)
        try:
            pickled: bytes = cloudpickle.dumps(function)
        finally:
            cloudpickle.unregister_pickle_by_value(package)
    return pickled
