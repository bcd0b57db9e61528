"""Search for large values that are embedded in graphs, in functions or as arguments."""

from __future__ import annotations

import builtins
import contextlib
import pickle
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from time import monotonic, time
from types import FunctionType, ModuleType
from typing import Any

from dask.sizeof import sizeof
from dask.utils import funcname, key_split
from distributed import Client

from dasfprof.recording.dask_internals import client_calls, names
from dasfprof.recording.dask_internals.patch import Hook, Patch, SharedPatches
from dasfprof.recording.guard import logging_errors
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.step import SentValue, Submission

#: Threshold (bytes): smaller graphs are not examined, and smaller values are not reported.
LEAST = 10_000
#: Maximum numbers: visited parts of a graph, visited parts of a layer, and reported values.
_MOST_PARTS, _MOST_OF_A_LAYER, _MOST_REPORTED = 10_000, 100, 10
#: Maximum number of values with the same name and type that are pickled to measure their size. The
#: sizes of later values are estimated with the ratio of the last measurement.
_MEASURED = 5
#: Threshold (seconds): if pickling a graph takes longer, its values are not pickled a second time.
_PATIENCE = 0.5
#: Packages with objects that know their size in bytes.
_SIZED = ("numpy", "pandas", "pyarrow", "scipy", "polars", "xarray", "cupy", "cudf", "torch")

_CONTAINERS = (dict, list, tuple, set)

#: By kind, name and type of a value: the number of measurements. From the last measurement: bytes
#: per estimated byte, and seconds per estimated byte.
_known: dict[tuple[str, ...], tuple[int, float, float]] = {}


def large_values(
    graph: Any, functions: Iterable[FunctionType], tasks: int, size: int, seconds: float
) -> Iterator[SentValue]:
    """Yield the large values of a graph that a client has sent.

    Parameters
    ----------
    graph
        The graph, or the expression from which the scheduler makes the graph.
    functions
        The functions in the graph that were pickled by value.
    tasks
        Number of requested keys.
    size, seconds
        Bytes of the pickled graph, and seconds of pickling the graph.
    """
    patient = seconds < _PATIENCE
    called: Counter[int] = Counter()
    values: dict[int, list[Any]] = {}
    for owner, value, times in values_in(graph, tasks):
        if type(value) is FunctionType:
            called[id(value)] += times
        elif (about := size_of_value(value)) >= LEAST:
            values.setdefault(id(value), [owner, value, about, 0])[3] += times
    for function in {id(function): function for function in functions}.values():
        name = f"{function.__module__}.{function.__qualname__}"
        held = sorted(_held(function), key=lambda item: -item[1])
        about = min(sum(bytes_ for _, bytes_ in held), size)
        measured = _measured(("function", name), function, about, patient)
        if measured[0] >= LEAST:
            times, what = called[id(function)], held[0][0] if held else ""
            yield SentValue("function", name, *measured, times, _why(function), what)
    # By owner and type: the first value, its bytes, the number of uses of all values, and the bytes
    # of all uses.
    groups: dict[tuple[str, type], list[Any]] = {}
    for owner, value, about, times in values.values():
        group = groups.setdefault((owner, type(value)), [value, about, 0, 0])
        group[2] += times
        group[3] += about * times
    largest = sorted(groups.items(), key=lambda pair: -pair[1][3])[:_MOST_REPORTED]
    for (owner, kind), (value, about, times, total) in largest:
        type_name = f"{kind.__module__}.{kind.__qualname__}"
        size, seconds = _measured(("argument", owner, type_name), value, about, patient)
        # The measured value may be larger or smaller than the mean of all values.
        ratio = total / max(about * times, 1)
        if size * ratio >= LEAST:
            mean = round(size * ratio), seconds * ratio
            yield SentValue("argument", owner, *mean, times, "argument", type_name)


def _measured(name: tuple[str, ...], value: Any, about: int, patient: bool) -> tuple[int, float]:
    """Return the bytes of a pickled value, and the seconds of pickling it.

    The value is pickled only if `patient` is true and few values with this name have been pickled.
    Otherwise, both figures are estimated from `about`, the approximate bytes of the value. The
    seconds are NaN if no value with this name has been pickled.
    """
    count, by_size, by_seconds = _known.get(name, (0, 1.0, float("nan")))
    if patient and count < _MEASURED and len(_known) < _MOST_PARTS:
        buffers: list[pickle.PickleBuffer] = []
        begin = monotonic()
        file = BytesIO()
        pickler = names.FUNCTIONS_SENT.find("Pickler")
        pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
        by_seconds = (monotonic() - begin) / max(about, 1)
        size = file.tell() + sum(buffer.raw().nbytes for buffer in buffers)
        by_size = size / max(about, 1)
        _known[name] = count + 1, by_size, by_seconds
    return round(by_size * max(about, 1)), by_seconds * max(about, 1)


def _why(function: FunctionType) -> str:
    """Return the reason why a function is pickled by value."""
    if function.__name__ == "<lambda>":
        return "a lambda"
    if "<locals>" in function.__qualname__:
        return "defined in a function"
    if function.__module__ == "__main__":
        return "of __main__"
    return "its module is sent by value"


def _held(function: FunctionType) -> Iterator[tuple[str, int]]:
    """Yield a description and the bytes of each value to which a function refers."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # The variable has no value yet.
            yield _described("closure", name, cell.cell_contents)
    for name in code.co_names:
        value = function.__globals__.get(name)
        if not isinstance(value, ModuleType | FunctionType | type) and not hasattr(builtins, name):
            yield _described("global", name, value)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield _described("default", "", value)


def _described(how: str, name: str, value: Any) -> tuple[str, int]:
    """Return the description and the approximate bytes of a value."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{how} {name}: {kind}".replace(" :", ":"), int(sizeof(value))


@dataclass(slots=True)
class _Part:
    """A part of a graph, such as a value, a task, or a container of such parts.

    `owner` is the name of the function or expression to which the part belongs. `times` is the
    number of tasks that the part represents.
    """

    value: Any
    owner: str = ""
    of_task: bool = False
    times: int = 1

    def some(self, values: Collection[Any], owner: str = "", of_task: bool = False) -> list[_Part]:
        """Return evenly spaced values of a container as parts.

        Each returned part also represents the values that were skipped after it.
        """
        step = max(len(values) // _MOST_OF_A_LAYER, 1)
        named, of_task, times = owner or self.owner, of_task or self.of_task, self.times * step
        spaced = islice(values, 0, None, step)
        return [_Part(value, named, of_task, times) for value in spaced]


def values_in(graph: Any, tasks: int) -> Iterator[tuple[str, Any, int]]:
    """Yield each value in a graph, with its owner and the number of tasks that use it.

    The order is owner (see `_Part`), value, number. For the function of a `Client.map`, the number
    is `tasks`. In a large layer, only evenly spaced values are visited. Each of these represents
    several tasks.
    """
    pending = [_Part(graph)]
    for _ in range(_MOST_PARTS):
        if not pending:
            return
        part = pending.pop()
        inner = _within(part, tasks)
        if inner is None:
            yield part.owner, part.value, part.times
        else:
            pending += inner


def _within(part: _Part, tasks: int) -> Iterable[_Part] | None:
    """Return the parts that a part contains, or None if the part is a value.

    For `tasks`, see `values_in`.
    """
    node, value, kind = names.CODE.find("GraphNode"), part.value, type(part.value)
    if part.of_task and kind in _CONTAINERS and _is_value(value, node):
        return None
    if kind is dict:
        inner = part.some(value.items())
        for item in inner:
            key, item.value = item.value
            # The keys of a dict of keyword arguments are texts, too, and do not name an owner.
            is_task = type(key) is tuple or (node is not None and isinstance(item.value, node))
            if is_task or not item.owner:
                item.owner = key_split(key)
        return inner
    if kind in _CONTAINERS:
        return part.some(value)
    if kind is partial:
        return part.some([value.func, *value.args, *value.keywords.values()])
    if node is not None and isinstance(value, node):
        args, kwargs = getattr(value, "args", None) or (), getattr(value, "kwargs", None) or {}
        others = getattr(value, "func", None), getattr(value, "value", None)
        return part.some([*others, *args, *kwargs.values()], of_task=True)
    package = kind.__module__.partition(".")[0]
    if package not in ("dask", "distributed"):
        return None
    if kind.__module__ == "dask.delayed":  # Its objects have every attribute.
        return ()
    if hasattr(value, "iterables"):  # The value belongs to `map`.
        part.owner = funcname(value.func)
        arguments = [*part.some(list(value.iterables)), *part.some([value.kwargs], of_task=True)]
        return [_Part(value.func, part.owner, True, tasks), *arguments]
    operands = getattr(value, "operands", None)
    if operands is not None:
        return part.some(operands, owner=kind.__name__)
    # A future refers to its client, which refers to all other futures.
    if package == "distributed":
        return ()
    return part.some(list(getattr(value, "__dict__", {}).values()))


def _is_value(value: Any, node: Any) -> bool:
    """Return whether a container in a task counts as a value, instead of being entered.

    Containers outside of tasks are always entered, because they contain either keys, or the
    arguments of many tasks.
    """
    if len(value) > _MOST_OF_A_LAYER:
        return True
    items = list(value.values() if type(value) is dict else value)
    has_tasks = node is not None and any(isinstance(item, node) for item in items)
    return bool(not has_tasks and sizeof(value) >= LEAST)


def size_of_value(value: Any) -> int:
    """Return the approximate bytes of a value, or 0 if the value does not know its size."""
    kind = type(value)
    if kind in (bytes, bytearray, str):
        return len(value)
    if kind in _CONTAINERS or kind.__module__.partition(".")[0] in _SIZED:
        return int(sizeof(value))
    return 0


class _ThreadState(threading.local):
    """The state of a thread that optimizes or sends a graph."""

    is_optimizing = False
    #: Seconds for which the thread has optimized since it last sent a graph. None if it has not
    #: optimized since then.
    optimizing: float | None = None
    #: Bytes of the graph that the thread is sending, and the functions in the graph that were
    #: pickled by value.
    size: Any = None
    functions: list[FunctionType] | None = None


_thread = _ThreadState()


def _hooks() -> Iterator[Hook]:
    """Yield the hooks on functions that send graphs, and on functions that optimize graphs."""
    yield Client, "_graph_to_futures", _timing_submission
    yield Client, "_send_to_scheduler", _noting_size
    yield names.FUNCTIONS_SENT.find("Pickler"), "_dynamic_function_reduce", _noting_functions
    for owner in (names.OPTIMISING.find("Expr"), names.FRAMES.find("Expr")):
        if owner is not None and "optimize" in vars(owner):
            yield owner, "optimize", _timing_optimisation


#: The patches for these hooks. The module `graphs` places and removes them.
timers = SharedPatches(_hooks)


def _timing_optimisation(original: Any, patch: Patch) -> Any:
    def optimize(*args: Any, **kwargs: Any) -> Any:
        if _thread.is_optimizing or not patch.active:
            return original(*args, **kwargs)
        _thread.is_optimizing, begin, alone = True, monotonic(), client_calls.clock()
        try:
            return original(*args, **kwargs)
        finally:
            _thread.is_optimizing = False
            _thread.optimizing = (_thread.optimizing or 0.0) + monotonic() - begin
            with logging_errors("an optimization"):
                client_calls.spent("optimising", client_calls.clock() - alone)

    return optimize


def _timing_submission(original: Any, patch: Patch) -> Any:
    def _graph_to_futures(*args: Any, **kwargs: Any) -> Any:
        if not patch.active:
            return original(*args, **kwargs)
        start, begin = time(), client_calls.clock()
        functions: list[FunctionType] = []
        _thread.functions, _thread.size = functions, None
        try:
            futures = original(*args, **kwargs)
        finally:
            _thread.functions = None
        with logging_errors("a submitted graph"):
            optimizing, _thread.optimizing = _thread.optimizing, None
            # The program may have imported dataframes since the hooks were placed.
            expressions, frames = names.OPTIMISING.find("Expr"), names.FRAMES.find("Expr")
            if timers.wraps(expressions) and (frames is None or timers.wraps(frames)):
                optimizing = optimizing or 0.0
            seconds, size = client_calls.clock() - begin, _thread.size
            client_calls.spent("pickling", seconds, keys=len(futures), sent=size or 0)
            values: tuple[SentValue, ...] = ()
            if size is not None and size >= LEAST:
                graph = (*args[1:], *kwargs.values())[0]
                values = tuple(large_values(graph, functions, len(futures), size, seconds))
            line = client_calls.line()
            client = str(args[0].id)
            sent = Submission(client, start, optimizing, size, functions, line, values)
            for observer in steps.observers:
                observer.submitted(sent)
        return futures

    return _graph_to_futures


def _noting_size(original: Any, patch: Patch) -> Any:
    def _send_to_scheduler(*args: Any, **kwargs: Any) -> Any:
        with logging_errors("the size of a graph"):
            message = args[1] if patch.active and len(args) > 1 else None
            if type(message) is dict and message.get("op") == "update-graph":
                # Older versions of Dask store the graph's frames separately.
                frames = getattr(message.get("expr_ser"), "frames", message.get("graph_frames"))
                if frames is not None:
                    _thread.size = sum(memoryview(frame).nbytes for frame in frames)
        return original(*args, **kwargs)

    return _send_to_scheduler


def _noting_functions(original: Any, patch: Patch) -> Any:
    def _dynamic_function_reduce(*args: Any, **kwargs: Any) -> Any:
        if _thread.functions is not None:
            _thread.functions += [arg for arg in args if type(arg) is FunctionType]
        return original(*args, **kwargs)

    return _dynamic_function_reduce
