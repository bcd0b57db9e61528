"""What a task's function is called with, and which functions it calls, by its specification."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from dasfprof.recording.dask_internals import names

# --- What a task's function is called with, as far as its specification tells ---------------------


class Result(NamedTuple):
    """An argument that is the result of another task."""

    key: Any


class Part(NamedTuple):
    """An argument that a part of the graph makes: a container of results, or a fused task."""

    kind: str


def arguments_of(task: Any, most: int) -> list[tuple[str, Any]]:
    """Return name and value of the first arguments of a worker's task.

    Positional ones have the names of the function's parameters, where it is plain Python, else
    numbers. Values that are not at hand are a `Result` or a `Part`.
    """
    spec = getattr(task, "run_spec", None)
    node = names.CODE.find("GraphNode")
    if node is None or not isinstance(spec, node):
        return []
    found = islice(_named(spec), most)
    return [(name, _value(value, node)) for name, value in found]


def _named(spec: Any) -> Iterator[tuple[str, Any]]:
    function, kwargs = getattr(spec, "func", None), getattr(spec, "kwargs", None)
    code = function.__code__ if type(function) is FunctionType else None
    parameters = code.co_varnames[: code.co_argcount] if code is not None else ()
    for place, value in enumerate(getattr(spec, "args", None) or ()):
        yield parameters[place] if place < len(parameters) else str(place), value
    if type(kwargs) is dict:
        yield from ((str(name), value) for name, value in kwargs.items())


def _value(value: Any, node: type) -> Any:
    if type(value) is names.ARGUMENTS.find("TaskRef"):
        return Result(value.key)
    if not isinstance(value, node):
        return value
    if type(value) is names.ARGUMENTS.find("Alias"):
        return Result(getattr(value, "target", None))
    if type(value) is names.ARGUMENTS.find("DataNode"):
        return getattr(value, "value", None)
    kind = getattr(value, "klass", None)
    return Part(kind.__name__ if isinstance(kind, type) else "")


# --- Which Python functions a task calls, as far as its specification names them ------------------

#: The most parts of a specification that are looked at.
_MOST = 300


def functions_of(task: Any) -> list[FunctionType]:
    """Return the functions of a worker's task, those of fused tasks too, the outermost first.

    Only Dask's own specifications, containers and partial functions are looked into.
    """
    node = names.CODE.find("GraphNode")
    found: list[FunctionType] = []
    pending: list[Any] = [getattr(task, "run_spec", None)]
    for _ in range(_MOST):
        if not pending:
            break
        part = pending.pop(0)
        kind = type(part)
        if kind is FunctionType:
            found.append(part)
        elif kind is MethodType:
            pending.append(part.__func__)
        elif kind is partial:
            pending += [part.func, *part.args, *part.keywords.values()]
        elif kind in (list, tuple):
            pending += part[:_MOST]
        elif kind is dict:
            pending += list(part.values())[:_MOST]
        elif node is not None and isinstance(part, node):
            pending += [getattr(part, name, None) for name in ("func", "args", "kwargs")]
    return list(dict.fromkeys(found))
