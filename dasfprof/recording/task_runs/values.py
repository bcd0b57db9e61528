"""What task runs were called with and what they returned: types, dtypes, shapes and lengths.

The data are not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType
from typing import Any

from dasfprof.recording.dask_internals.task_functions import Part, Result, arguments_of
from dasfprof.recording.dask_internals.undocumented import value_in_memory
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.under_way.rows import UnderWayRows
from dasfprof.schema.tasks import TASK_ARGUMENTS

# --- The type, dtype and shape of a task's result, read without touching the data -----------------
#
# ``getattr(value, "dtype")`` is not safe for every value: a DataFrame may have a column of that
# name, a Delayed has every attribute, and a property may compute or wait. So the way to read a
# value is chosen once for each type: properties that are implemented in C (as in numpy, cupy, torch
# and pyarrow), and those of packages whose properties are known to be fast. No code of other
# classes is called.

Shape = tuple[int, ...] | None
#: The name of a value's type, its dtype object and its shape.
Description = tuple[str, Any, Shape]
Reader = Callable[[Any], Description]

_MAX_TYPES = 10_000

#: Packages whose properties `shape` and `dtype`, in Python, neither compute nor wait.
_ANSWER_AT_ONCE = frozenset(
    (
        "anndata",
        "cudf",
        "cupy",
        "geopandas",
        "numpy",
        "pandas",
        "polars",
        "scipy",
        "sparse",
        "xarray",
    )
)

#: Reads an attribute of a class without code of its metaclass.
_ask_type = type.__getattribute__


class ResultDescriber:
    """Describes results; caches one reader for each type."""

    def __init__(self) -> None:
        self._known: dict[type, Reader] = {}
        #: The descriptions of values of the known types that have no shape.
        self.plain: dict[type, Description] = {}

    def __call__(self, value: Any) -> Description:
        """Return the value's type name, dtype object and shape, None for those that it lacks."""
        kind = type(value)
        reader = self._known.get(kind)
        if reader is None:
            if len(self._known) >= _MAX_TYPES:  # types created at run time must not accumulate
                self._known.clear()
                self.plain.clear()
            read_shape = _find(kind, "shape")
            if read_shape is None:
                self.plain[kind] = type_name(kind), None, None
            reader = self._known[kind] = _choose_reader(kind, read_shape)
        return reader(value)


def type_name(kind: type | None) -> str:
    """Return a type's name as ``module.qualname``; Dask passes None for the type of None."""
    if kind is None:
        return "NoneType"
    module, name = _ask_type(kind, "__module__"), _ask_type(kind, "__qualname__")
    return name if module == "builtins" else f"{module}.{name}"


def _choose_reader(kind: type, read_shape: Callable[[Any, type], Any] | None) -> Reader:
    name, read_dtype = type_name(kind), _find(kind, "dtype")
    if read_shape is None:
        nothing = name, None, None
        return lambda value: nothing
    if read_dtype is None:
        return lambda value: (name, None, _plain(read_shape(value, kind)))
    return lambda value: (name, read_dtype(value, kind), _plain(read_shape(value, kind)))


def _find(kind: type, name: str) -> Callable[[Any, type], Any] | None:
    """Return what reads an attribute without `__getattribute__`; None where it is not safe."""
    for base in _ask_type(kind, "__mro__"):
        declared = _ask_type(base, "__dict__")
        if name in declared:
            descriptor = declared[name]
            package = str(_ask_type(base, "__module__")).partition(".")[0]
            if isinstance(descriptor, GetSetDescriptorType) or package in _ANSWER_AT_ONCE:
                return getattr(descriptor, "__get__", None)
            return None
    return None


def _plain(shape: Any) -> Shape:
    if type(shape) is not tuple:
        return None
    for length in shape:
        if type(length) is not int:
            return None
    return shape


# --- TaskArguments: what task runs were called with, by type, dtype, shape and length -------------
#
# Values may be secrets, so they are left out unless they are asked for, and then only those of
# plain types are written: the code of no other class is called. Results of other tasks are looked
# at only where they are in memory. A brief task would pay more for this than it takes, so it is
# told only of runs over `LEAST`, and of those that failed.

#: Seconds of the briefest task run that is told of.
LEAST = 0.01
#: The most task runs of a function of a worker, functions, arguments of each, and characters.
MOST_RUNS, MOST_FUNCTIONS, MOST, LONGEST = 1000, 1000, 20, 500
#: Characters of a value, items of a container that are written, and containers within each other.
_LONGEST_VALUE, _ITEMS, _DEEPEST = 80, 5, 2
#: Bits from which an integer is told by its type alone: writing it takes long.
_LONG = 256

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_PLAIN = (bool, float, complex, type(None))
_BRACKETS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


class TaskArguments:
    """Writes the arguments of task runs of a worker.

    Parameters
    ----------
    worker
        The worker.
    rows
        Of the file of the plugin.
    with_values
        Whether values of plain types are written.
    guard
        Handles errors.
    """

    def __init__(
        self, worker: Any, rows: UnderWayRows, with_values: bool, guard: HookGuard
    ) -> None:
        self._data = worker.data
        self._rows = rows
        self._with_values = with_values
        self._guard = guard
        self._describe = ResultDescriber()
        #: How many runs of each function are told of.
        self._told: dict[str, int] = {}

    def see(self, key: Any, run_id: int | None, task: Any) -> None:
        """Write the arguments of a task run; called on the event loop."""
        try:
            name = str(getattr(task, "prefix", None))
            number = self._told.get(name, 0)
            if number >= MOST_RUNS or (not number and len(self._told) >= MOST_FUNCTIONS):
                return
            self._told[name] = number + 1
            types = {each.key: each.type for each in task.dependencies}
            text = "; ".join(
                f"{name}: {self._text(value, types)}" for name, value in arguments_of(task, MOST)
            )
            facts = {"key": key, "run_id": run_id, "arguments": _cut(text, LONGEST)}
            self._rows.write(TASK_ARGUMENTS, facts)
        except Exception:
            self._guard.caught("the arguments of a task")

    def _text(self, value: Any, types: dict[Any, type | None]) -> str:
        if type(value) is Part:
            return f"{value.kind} with results" if value.kind else "result of a fused task"
        if type(value) is not Result:
            return self._described(value)
        known = value_in_memory(self._data, value.key)
        if known is not None:
            return f"result, {self._described(known, is_result=True)}"
        kind = types.get(value.key)
        return "result" if kind is None else f"result, {type_name(kind)}"

    def _described(self, value: Any, *, is_result: bool = False) -> str:
        written = _written(value) if self._with_values and not is_result else None
        if written is not None:
            return written
        if type(value) in _SIZED:
            return f"{type(value).__name__} of {len(value)}"
        kind, dtype, shape = self._describe(value)
        return " ".join(str(part) for part in (kind, dtype, shape) if part is not None)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _written(value: Any, depth: int = 0) -> str | None:
    """Return a value of plain types as Python writes it, cut; None: it is of another type."""
    kind = type(value)
    if kind in _PLAIN or (kind is int and value.bit_length() < _LONG):
        return repr(value)
    if kind in (str, bytes):
        cut = "..." if len(value) > _LONGEST_VALUE else ""
        return f"{value[:_LONGEST_VALUE]!r}{cut}"
    if depth >= _DEEPEST or kind not in (*_BRACKETS, dict):
        return None
    if kind is dict:
        pairs = list(value.items())[:_ITEMS]
        items = [": ".join(_item(each, depth) for each in pair) for pair in pairs]
    else:
        items = [_item(each, depth) for each in list(value)[:_ITEMS]]
    more = [f"... {len(value)} in all"] if len(value) > _ITEMS else []
    brackets = _BRACKETS.get(kind, "{}")
    return f"{brackets[0]}{', '.join([*items, *more])}{brackets[1]}"


def _item(value: Any, depth: int) -> str:
    return _written(value, depth + 1) or type_name(type(value))
