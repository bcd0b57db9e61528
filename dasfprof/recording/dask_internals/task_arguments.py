"""What a task's function is called with, as far as its specification tells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import FunctionType
from typing import Any, NamedTuple

from dasfprof.recording.dask_internals import names


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
