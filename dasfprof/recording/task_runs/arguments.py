"""`TaskArguments`: records the arguments of task runs by their type, dtype, shape and length.

Values may be secrets, so they are not recorded. A result of another task is described only
if it is in memory. For brief tasks, describing arguments would cost too much. So arguments are
recorded only if the task run failed or took at least `LEAST` seconds.
"""

from __future__ import annotations

from typing import Any

from dasfprof.recording.dask_internals.task_functions import NestedArgument, Result, arguments_of
from dasfprof.recording.dask_internals.undocumented import value_in_memory
from dasfprof.recording.rows import FileRows
from dasfprof.recording.task_runs.results import ResultDescriber, type_name
from dasfprof.schema.tasks import TASK_ARGUMENTS

#: Threshold (seconds): arguments of shorter task runs are not recorded, unless the task run failed.
LEAST = 0.01
#: Maximum numbers: task runs that are recorded per function and worker, functions per worker,
#: arguments per task run, and characters per task run.
MOST_RUNS, MOST_FUNCTIONS, MOST, LONGEST = 1000, 1000, 20, 500

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


class TaskArguments:
    """Writes the arguments of a worker's task runs to a file.

    Parameters
    ----------
    rows
        Writes rows into the plugin's file.
    """

    def __init__(self, worker: Any, rows: FileRows) -> None:
        self._data = worker.data
        self._rows = rows
        self._describe = ResultDescriber()
        #: Number of recorded task runs by function.
        self._recorded: dict[str, int] = {}

    def record(self, key: Any, run_id: int | None, task: Any) -> None:
        """Write the arguments of a task run, within limits. Called on the event loop."""
        with self._rows.guard.catching("the arguments of a task"):
            name = str(getattr(task, "prefix", None))
            number = self._recorded.get(name, 0)
            if number >= MOST_RUNS or (not number and len(self._recorded) >= MOST_FUNCTIONS):
                return
            self._recorded[name] = number + 1
            types = {each.key: each.type for each in task.dependencies}
            text = "; ".join(
                f"{name}: {self._text(value, types)}" for name, value in arguments_of(task, MOST)
            )
            if len(text) > LONGEST:
                text = f"{text[: LONGEST - 1]}…"
            self._rows.write(TASK_ARGUMENTS, {"key": key, "run_id": run_id, "arguments": text})

    def _text(self, value: Any, types: dict[Any, type | None]) -> str:
        if type(value) is NestedArgument:
            return f"{value.kind} with results" if value.kind else "result of a fused task"
        if type(value) is not Result:
            return self._described(value)
        result = value_in_memory(self._data, value.key)
        if result is not None:
            return f"result, {self._described(result)}"
        kind = types.get(value.key)
        return "result" if kind is None else f"result, {type_name(kind)}"

    def _described(self, value: Any) -> str:
        if type(value) in _SIZED:
            return f"{type(value).__name__} of {len(value)}"
        kind, dtype, shape = self._describe(value)
        return " ".join(str(part) for part in (kind, dtype, shape) if part is not None)
