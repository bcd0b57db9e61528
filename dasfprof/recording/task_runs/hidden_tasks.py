"""Hiding of other clients' tasks, in a recording of only one client.

On the scheduler, `TaskClients` marks hidden tasks with an annotation, which workers receive with
the tasks. On workers, `HiddenTasks` has the keys of hidden tasks. Files contain the times of hidden
task runs, but neither their keys nor their texts, such as exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import Any

from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows, SchemaRow
from dasfprof.recording.task_runs.task_notes import RUN, SENT_RUN
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import OTHER_CLIENTS

Note = tuple[Any, ...]
Append = Callable[[Note], None]

#: Values that replace texts and sizes in notes of hidden task runs: in notes of workers, and in
#: notes of schedulers.
_OF_WORKER = {
    **{"prefix": OTHER_CLIENTS, "state": "memory", "size": 0, "dependencies": (), "input_size": 0},
    **dict.fromkeys(("type", "dtype", "shape", "exception", "raised_at")),
}
_OF_SCHEDULER = {"annotations": None, "exception": None}


def hiding_runs(append: Append, hidden: Container[Any], *, of_worker: bool) -> Append:
    """Return a function that appends notes of task runs, without the texts of hidden tasks.

    In notes of hidden tasks, other values replace the key and texts such as exceptions.

    Parameters
    ----------
    append
        Appends a note.
    hidden
        Keys of hidden tasks.
    of_worker
        Whether the notes come from a worker, instead of the scheduler.
    """
    fields, replaced = (RUN, _OF_WORKER) if of_worker else (SENT_RUN, _OF_SCHEDULER)
    run_id = fields.index("run_id")
    replacements = [(fields.index(name), value) for name, value in replaced.items()]

    def hide(note: Note) -> None:
        if note[0] in hidden:
            items = list(note)
            items[0] = f"{OTHER_CLIENTS}-{-1 if note[run_id] is None else note[run_id]}"
            for position, value in replacements:
                items[position] = value
            note = tuple(items)
        append(note)

    return hide


def hide_rows(rows: FileRows, hidden: Container[Any]) -> None:
    """From now on, write no rows about hidden tasks.

    Rows about several tasks are written without hidden keys, unless all of their keys are hidden.
    """
    append = rows.append
    rows.hidden = hidden

    def hide(row: SchemaRow) -> object:
        schema, values = row
        key, keys = _key_columns(schema)
        if key is not None and values[key] in hidden:
            return None
        if keys is not None:
            shown = tuple([item for item in values[keys] or () if item not in hidden])
            if values[keys] and not shown:
                return None
            row = schema, (*values[:keys], shown, *values[keys + 1 :])
        return append(row)

    rows.append = hide


@cache
def _key_columns(schema: Schema) -> list[int | None]:
    """Return the positions of an event's columns ``key`` and ``keys``, or None if missing."""
    names = [name for name, _ in (*schema.fields, *schema.args)]
    return [names.index(name) if name in names else None for name in ("key", "keys")]


class HiddenTasks:
    """The keys of other clients' tasks on a worker, and of the dependencies of these tasks.

    Parameters
    ----------
    mark
        The name of the annotation that marks other clients' tasks.
    known
        Keys of hidden tasks that were sent to workers before the scheduler could mark them.
    """

    def __init__(self, worker: Any, mark: str, known: Iterable[Any], guard: HookGuard) -> None:
        self._tasks, self._mark, self._guard = worker.state.tasks, mark, guard
        self.keys = set(known)

    def noting(self, transition: Callable[..., None]) -> Callable[..., None]:
        """Return a hook for transitions of tasks, which updates the keys and calls `transition`."""

        def hook(key: Any, start: str, finish: str, **kwargs: Any) -> None:
            try:
                if finish == "waiting":
                    self._received(key)
                elif finish == "forgotten":
                    self.keys.discard(key)
            except Exception:
                self._guard.caught("transition")
            transition(key, start, finish, **kwargs)

        return hook

    def _received(self, key: Any) -> None:
        task = self._tasks.get(key)
        if task is None or task.annotations is None:  # The key is a result of another worker.
            return
        if self._mark not in task.annotations:
            self.keys.discard(key)
            return
        self.keys.add(key)
        self.keys.update(each.key for each in task.dependencies if each.annotations is None)
