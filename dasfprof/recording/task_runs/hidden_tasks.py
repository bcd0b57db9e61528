"""Tasks of other clients: what a recording of one client's own work leaves out of its files.

On the scheduler `TaskClients` marks such tasks by an annotation, which travels with them to
workers. There `HiddenTasks` knows their keys. Of their task runs times are written, and no texts.
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

#: What is written of a hidden task run in place of texts and sizes, by workers and schedulers.
_OF_WORKER = {"prefix": OTHER_CLIENTS, "state": "memory", "size": 0, "type": None, "dtype": None}
_OF_WORKER |= {"shape": None, "dependencies": (), "input_size": 0, "exception": None}
_OF_WORKER |= {"raised_at": None}
_OF_SCHEDULER = {"annotations": None, "exception": None}


def hiding_runs(append: Append, hidden: Container[Any], *, of_worker: bool) -> Append:
    """Return a function that appends notes of task runs, those of hidden tasks without texts.

    Parameters
    ----------
    append
        Appends a note.
    hidden
        The keys of hidden tasks.
    of_worker
        Whether the notes are a worker's; else they are a scheduler's.
    """
    fields, nothing = (RUN, _OF_WORKER) if of_worker else (SENT_RUN, _OF_SCHEDULER)
    run_id, places = (
        fields.index("run_id"),
        [(fields.index(name), nothing[name]) for name in nothing],
    )

    def hide(note: Note) -> None:
        if note[0] in hidden:
            items = list(note)
            items[0] = f"{OTHER_CLIENTS}-{-1 if note[run_id] is None else note[run_id]}"
            for place, value in places:
                items[place] = value
            note = tuple(items)
        append(note)

    return hide


def hide_rows(rows: FileRows, hidden: Container[Any]) -> None:
    """Leave rows about hidden tasks out of a file, and their keys out of rows of several keys."""
    append = rows.append
    rows.hidden = hidden

    def hide(row: SchemaRow) -> object:
        schema, values = row
        key, keys = _places(schema)
        if key is not None and values[key] in hidden:
            return None
        if keys is not None:
            shown = tuple([one for one in values[keys] or () if one not in hidden])
            if values[keys] and not shown:
                return None
            row = schema, (*values[:keys], shown, *values[keys + 1 :])
        return append(row)

    rows.append = hide


@cache
def _places(schema: Schema) -> tuple[int | None, int | None]:
    """Return the places of the columns ``key`` and ``keys`` of a kind of event."""
    names = [name for name, _ in (*schema.fields, *schema.args)]
    return tuple(names.index(name) if name in names else None for name in ("key", "keys"))  # type: ignore[return-value]


class HiddenTasks:
    """The keys of a worker's tasks that are of other clients, and of results that only these take.

    Parameters
    ----------
    worker
        The worker; only read.
    mark
        The annotation of such tasks.
    known
        Those that had been sent to workers before the scheduler could mark them.
    guard
        Handles errors.
    """

    def __init__(self, worker: Any, mark: str, known: Iterable[Any], guard: HookGuard) -> None:
        self._tasks, self._mark, self._guard = worker.state.tasks, mark, guard
        self.keys = set(known)

    def noting(self, transition: Callable[..., None]) -> Callable[..., None]:
        """Return a hook of a worker's transitions that notes tasks that come, and calls another."""

        def hook(key: Any, start: str, finish: str, **kwargs: Any) -> None:
            try:
                if finish == "waiting":
                    self._see(key)
                elif finish == "forgotten":
                    self.keys.discard(key)
            except Exception:
                self._guard.caught("transition")
            transition(key, start, finish, **kwargs)

        return hook

    def _see(self, key: Any) -> None:
        task = self._tasks.get(key)
        if task is None or task.annotations is None:  # a result of another worker
            return
        if self._mark not in task.annotations:
            self.keys.discard(key)
            return
        self.keys.add(key)
        self.keys.update(one.key for one in task.dependencies if one.annotations is None)
