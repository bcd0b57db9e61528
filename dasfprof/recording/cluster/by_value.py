"""Functions pickled as source text, so that a process without dasfprof can run them.

Pickle refers to a function by its module, which such a process cannot import. cloudpickle sends
byte code instead, which is valid for one version of Python only. Source text is valid
everywhere, and every pickle can refer to the built-in `eval`.
"""

from __future__ import annotations

import functools
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
