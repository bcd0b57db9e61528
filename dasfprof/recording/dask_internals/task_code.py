"""Which Python functions a task calls, as far as its specification names them."""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any

from dasfprof.recording.dask_internals import names

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
