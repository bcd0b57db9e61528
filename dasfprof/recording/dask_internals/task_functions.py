"""Observers of the tasks of a worker. An observer is called in the thread that runs the task.

Observers wrap Dask's private `distributed.worker._run_task_simple`. All workers of a process share
this function, so the wrapper of each observer passes on the tasks of other workers. Wrappers can be
removed in any order (see `Patch`).

Coroutine tasks are not observed, nor are tasks in a pool of processes, which have no worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import distributed.worker
from distributed import get_worker

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.patch import Patch

RUN_TASK = "_run_task_simple"

TaskCallable = Callable[..., Any]
#: Returns a wrapper of a function. The first positional argument of the function is the task. The
#: wrapper must raise only exceptions that the function raises.
Wrap = Callable[[TaskCallable], TaskCallable]


def availability() -> str:
    """Return ``available`` if tasks can be observed, or else the reason why they cannot."""
    if names.RUN_TASK.exist():
        return "available"
    return "this version of Dask runs its tasks in another way"


def observe(worker: Any, wrap: Wrap) -> Callable[[], None] | None:
    """Wrap the function that runs a worker's tasks.

    Returns
    -------
    Callable or None
        Stops the observation. Tasks that are running are observed until they end. None if this
        version of Dask does not have the function to wrap.
    """
    if availability() != "available":
        return None
    return Patch(distributed.worker, RUN_TASK, partial(_around, worker, wrap)).remove


def _around(worker: Any, wrap: Wrap, original: Any, patch: Patch) -> Any:
    ours = wrap(original)

    def run_observed(*args: Any, **kwargs: Any) -> Any:
        try:  # Dask passes the task by position.
            is_observed = bool(args) and patch.active and get_worker() is worker
        except ValueError:  # A process of a pool has no worker.
            is_observed = False
        return (ours if is_observed else original)(*args, **kwargs)

    return run_observed


def running_tasks(worker: Any) -> dict[int, Any]:
    """Return the worker's dict of the running tasks' keys by thread identity, or an empty dict."""
    return getattr(worker, "active_threads", {})


def first_functions() -> tuple[CodeType, ...]:
    """Return the code of the functions of Dask that call the functions of tasks and actors."""
    callers = names.RUN_TASK.find("_run_task_simple"), names.RUN_ACTOR.find("_run_actor")
    return tuple(inspect.unwrap(each).__code__ for each in callers if each is not None)


class Result(NamedTuple):
    """An argument that is the result of another task."""

    key: Any


class NestedArgument(NamedTuple):
    """An argument that is a part of the graph: a container of results, or a fused task."""

    kind: str


def arguments_of(task: Any, most: int) -> list[tuple[str, Any]]:
    """Return the names and the values of the first `most` arguments of a worker's task.

    If the function is not a plain Python function, the name of a positional argument is its
    position. A `Result` or a `NestedArgument` replaces a value that is not in the task's
    specification.
    """
    spec = getattr(task, "run_spec", None)
    node = names.CODE.find("GraphNode")
    if node is None or not isinstance(spec, node):
        return []
    return [(name, _value(value, node)) for name, value in islice(_named(spec), most)]


def _named(spec: Any) -> Iterator[tuple[str, Any]]:
    function, kwargs = getattr(spec, "func", None), getattr(spec, "kwargs", None)
    code = function.__code__ if type(function) is FunctionType else None
    parameters = code.co_varnames[: code.co_argcount] if code is not None else ()
    for position, value in enumerate(getattr(spec, "args", None) or ()):
        yield parameters[position] if position < len(parameters) else str(position), value
    if type(kwargs) is dict:
        yield from ((str(name), value) for name, value in kwargs.items())


def _value(value: Any, node: type) -> Any:
    reference, alias, data = map(names.ARGUMENTS.find, ("TaskRef", "Alias", "DataNode"))
    if type(value) is reference:
        return Result(value.key)
    if not isinstance(value, node):
        return value
    if type(value) is alias:
        return Result(getattr(value, "target", None))
    if type(value) is data:
        return getattr(value, "value", None)
    kind = getattr(value, "klass", None)
    return NestedArgument(kind.__name__ if isinstance(kind, type) else "")


#: Maximum number of visited parts of a specification.
_MOST = 300


def functions_of(task: Any) -> list[FunctionType]:
    """Return the Python functions of a worker's task and of its fused tasks, outermost first."""
    node = names.CODE.find("GraphNode")
    functions: list[FunctionType] = []
    pending: list[Any] = [getattr(task, "run_spec", None)]
    for _ in range(_MOST):
        if not pending:
            break
        part = pending.pop(0)
        kind = type(part)
        if kind is FunctionType:
            functions.append(part)
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
    return list(dict.fromkeys(functions))
