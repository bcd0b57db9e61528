"""Functions that travel as source text, so that a process without dasfprof can run them.

Pickle names a function by its module, which such a process cannot import. cloudpickle sends the
code instead, but byte code is valid for one version of Python alone. Source text is valid
everywhere, and the built-in `eval` can be named by every pickle.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


class ByValue:
    """A function that is pickled as its source text; called here, it is the function.

    Parameters
    ----------
    function
        A plain function or coroutine function. It must import all that it uses.
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
        """Return what `__reduce__` returns for an object that a call of the function makes."""
        namespace = {**_namespace(self._function), "args": args}
        return eval, ("exec(source) or eval(name)(*args)", namespace)


def by_value(function: Callable[..., Any]) -> ByValue:
    """Have a function pickled as its source text; also a decorator."""
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
