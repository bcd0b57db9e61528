"""`TasksUnderWay`: snapshots of a worker's tasks that started over a second ago."""

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

#: Threshold (seconds since its start): a task is recorded.
OLDER_THAN = 1.0

#: States of a task that waits for its inputs, and of a task that was cancelled while it waited.
FETCHING, RELEASED = "fetching", "released"


def watch_worker(
    worker: Any,
    received: Mapping[Any, float],
    rows: FileRows,
    guard: HookGuard,
    undo: list[Callable[[], object]],
) -> None:
    """Record the unfinished tasks of a worker. Called on its event loop.

    Parameters
    ----------
    worker, received, rows
        See `TasksUnderWay`.
    guard
        Handler of errors.
    undo
        List to which functions are added that end the recording. Call the last one first.
    """
    calls = [LoopWatch(worker, rows).sample]
    if names.UNDER_WAY.exist():
        calls.append(TasksUnderWay(worker, received, rows).sample)
        undo.append(watch_locks(worker, partial(rows.write, LOCK_HELD)))
    pulse = Pulse(f"under-way {worker.name}", calls, guard)
    pulse.start()
    undo.append(pulse.stop)


class _Task:
    """A task in earlier snapshots."""

    __slots__ = ("busy", "repeats", "row", "seen")

    def __init__(self, now: float) -> None:
        self.seen = now
        self.busy = Busy()
        self.repeats = Repeats(now)
        self.row: dict[str, Any] = {}


class TasksUnderWay:
    """Writer of rows about a worker's tasks. Called in one thread, once per second.

    Parameters
    ----------
    worker
        The worker, which is only read.
    received
        When the worker received each task, by key. Its event loop adds and removes entries.
    rows
        The rows of its file.
    """

    def __init__(self, worker: Any, received: Mapping[Any, float], rows: FileRows) -> None:
        self._worker = worker
        self._tasks = worker.state.tasks
        self._received = received
        self._rows = rows
        #: CPU seconds of threads when their tasks were first seen.
        self._cpu: dict[Any, float] = {}
        #: By key and thread, because a cancelled task may run while its key is requested again.
        self._known: dict[tuple[Any, str | None], _Task] = {}

    def sample(self) -> None:
        """Write the rows that are due."""
        now = monotonic()
        current = set()
        for row in tasks_under_way(self._worker, OLDER_THAN, self._cpu):
            if row["state"] == FETCHING:
                row["since"] = self._received.get(row["key"])
            identity = row["key"], row["thread"]
            current.add(identity)
            task = self._known.get(identity)
            before = None if task is None else task.row.get("since")
            if None not in (before, row["since"]) and before != row["since"]:  # It started again.
                self._leave(identity)
                task = None
            if task is None:
                task = self._known[identity] = _Task(now)
            self._write(task, row, now)
        for identity in self._known.keys() - current:
            self._leave(identity)

    def _write(self, task: _Task, row: dict[str, Any], now: float) -> None:
        known = task.row
        if row["since"] is None:  # The task was released, and its thread continues.
            row["since"] = known.get("since")
        age = now - task.seen if row["since"] is None else time() - row["since"]
        if age < OLDER_THAN:
            return
        if known.get("state") == FETCHING and known["run_id"] != row["run_id"]:
            self._release(known)
        elif known and known["state"] != FETCHING:
            # Dask assigns a new run_id to a cancelled task that is requested again.
            row["run_id"] = known["run_id"]
        row["holds"] = held_by(row["key"])
        in_thread = row["thread"] is not None
        if in_thread:
            row["thread"] = int(row["thread"])  # In the form of task runs.
        stack = row.pop("stack")
        facts = (
            row["state"],
            stack,
            row["waits_in"],
            row["waits_for"],
            row["waits_keys"] if in_thread else None,  # Inputs arrive one by one.
            row["holds"],
        )
        task.row = row
        row["thread_state"] = task.busy.state(row["thread_state"], row["cpu"], now)
        if task.repeats.is_due(now, facts, row["thread_state"]):
            self._rows.write(TASK_UNDER_WAY, row, stack)

    def _leave(self, identity: tuple[Any, str | None]) -> None:
        """Forget a task that is no longer in the snapshot. Its task run records how it ended."""
        task = self._tasks.get(identity[0])
        if task is not None and task.state == "waiting":  # The number of tasks is limited.
            return
        row = self._known.pop(identity).row
        began = task is not None and task.state != "released" and task.run_id == row.get("run_id")
        if row.get("state") == FETCHING and not began:
            self._release(row)

    def _release(self, row: dict[str, Any]) -> None:
        """Write the end of a task that never got a thread, and therefore has no task run."""
        self._rows.write(TASK_UNDER_WAY, {**row, "state": RELEASED, "waits_keys": []})
