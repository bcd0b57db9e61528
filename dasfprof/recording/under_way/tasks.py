"""`TasksUnderWay`: what a worker's tasks do that began over a second ago."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic, time
from typing import Any

from dasfprof.recording.dask_internals import names
from dasfprof.recording.dask_internals.held_locks import held_by, watch_locks
from dasfprof.recording.dask_internals.inspection.views import tasks_under_way
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.rows import FileRows
from dasfprof.recording.under_way.loop import Busy, LoopWatch, Pulse, Repeats
from dasfprof.schema.under_way import LOCK_HELD, TASK_UNDER_WAY

#: Seconds from which a task is told of.
OLDER_THAN = 1.0

#: Of the state of a task whose inputs are not there yet, and of one that was then not wanted.
FETCHING, RELEASED = "fetching", "released"


def watch_worker(
    worker: Any,
    received: Mapping[Any, float],
    rows: FileRows,
    guard: HookGuard,
    undo: list[Callable[[], object]],
) -> None:
    """Record what a worker has under way; called on its event loop.

    Parameters
    ----------
    worker, received, rows
        See `TasksUnderWay`.
    guard
        Handles errors.
    undo
        Gets what ends it, to be called from last to first.
    """
    looks = [LoopWatch(worker, rows).look]
    if names.UNDER_WAY.exist():
        looks.append(TasksUnderWay(worker, received, rows).look)
        undo.append(watch_locks(worker, partial(rows.write, LOCK_HELD)))
    pulse = Pulse(f"under-way {worker.name}", looks, guard)
    pulse.start()
    undo.append(pulse.stop)


class _Task:
    """What is known of a task from earlier looks."""

    __slots__ = ("busy", "repeats", "row", "seen")

    def __init__(self, now: float) -> None:
        self.seen = now
        self.busy = Busy()
        self.repeats = Repeats(now)
        self.row: dict[str, Any] = {}


class TasksUnderWay:
    """Writes rows of a worker's tasks. Called in one thread, once a second.

    Parameters
    ----------
    worker
        The worker; only read.
    received
        By key: when the worker knew of a task. Its event loop adds and removes them.
    rows
        Where they go.
    """

    def __init__(self, worker: Any, received: Mapping[Any, float], rows: FileRows) -> None:
        self._worker = worker
        self._tasks = worker.state.tasks
        self._received = received
        self._rows = rows
        #: CPU seconds of threads as their tasks were first seen.
        self._cpu: dict[Any, float] = {}
        #: By key and thread: a cancelled task may still run while its key is fetched for again.
        self._known: dict[tuple[Any, str | None], _Task] = {}

    def look(self) -> None:
        """Write what is due."""
        now = monotonic()
        current = set()
        for row in tasks_under_way(self._worker, OLDER_THAN, self._cpu):
            if row["state"] == FETCHING:
                row["since"] = self._received.get(row["key"])
            identity = row["key"], row["thread"]
            current.add(identity)
            task = self._known.get(identity)
            before = None if task is None else task.row.get("since")
            if None not in (before, row["since"]) and before != row["since"]:  # it began anew
                self._leave(identity)
                task = None
            if task is None:
                task = self._known[identity] = _Task(now)
            self._write(task, row, now)
        for identity in self._known.keys() - current:
            self._leave(identity)

    def _write(self, task: _Task, row: dict[str, Any], now: float) -> None:
        known = task.row
        if row["since"] is None:  # of a task that was released, and whose thread goes on
            row["since"] = known.get("since")
        age = now - task.seen if row["since"] is None else time() - row["since"]
        if age < OLDER_THAN:
            return
        if known.get("state") == FETCHING and known["run_id"] != row["run_id"]:
            self._release(known)
        elif known and known["state"] != FETCHING:
            row["run_id"] = known["run_id"]  # Dask gives a cancelled one that is wanted again a new
        row["holds"] = held_by(row["key"])
        in_thread = row["thread"] is not None
        if in_thread:
            row["thread"] = int(row["thread"])  # as in its task run
        stack = row.pop("stack")
        facts = (
            row["state"],
            stack,
            row["waits_in"],
            row["waits_for"],
            row["waits_keys"] if in_thread else None,  # inputs arrive one by one
            row["holds"],
        )
        task.row = row
        row["thread_state"] = task.busy.state(row["thread_state"], row["cpu"], now)
        if task.repeats.is_due(now, facts, row["thread_state"]):
            self._rows.write(TASK_UNDER_WAY, row, stack)

    def _leave(self, identity: tuple[Any, str | None]) -> None:
        """Forget a task that is not seen any more. Its task run says how it ended."""
        task = self._tasks.get(identity[0])
        if task is not None and task.state == "waiting":  # not all of so many are looked at
            return
        row = self._known.pop(identity).row
        began = task is not None and task.state != "released" and task.run_id == row.get("run_id")
        if row.get("state") == FETCHING and not began:
            self._release(row)

    def _release(self, row: dict[str, Any]) -> None:
        """Write the end of a task that was not given a thread: it has no task run."""
        self._rows.write(TASK_UNDER_WAY, {**row, "state": RELEASED, "waits_keys": []})
