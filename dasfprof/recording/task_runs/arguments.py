"""`TaskArguments`: what task runs were called with, by type, dtype, shape and length.

Values may be secrets, so they are left out unless they are asked for, and then only those of plain
types are written: the code of no other class is called. Results of other tasks are looked at only
where they are in memory. A brief task would pay more for this than it takes, so it is told only of
runs over `LEAST`, and of those that failed.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.dask_internals.task_functions import Part, Result, arguments_of
from dasfprof.recording.dask_internals.undocumented import value_in_memory
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.results import ResultDescriber, type_name
from dasfprof.schema.tasks import TASK_ARGUMENTS

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

    def __init__(self, worker: Any, rows: FileRows, with_values: bool, guard: HookGuard) -> None:
        self._data = worker.data
        self._rows = rows
        self._with_values = with_values
        self._guard = guard
        self._describe = ResultDescriber()
        #: How many runs of each function are told of.
        self._told: dict[str, int] = {}

    def see(self, key: Any, run_id: int | None, task: Any) -> None:
        """Write the arguments of a task run; called on the event loop."""
        with self._guard.catching("the arguments of a task"):
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
