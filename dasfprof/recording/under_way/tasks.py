"""`TasksUnderWay`: writes snapshots of those tasks of a worker that started over a second ago."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time
from typing import Any

from dasfprof.recording.dask_internals.held_locks import held_by
from dasfprof.recording.dask_internals.inspection.views import tasks_under_way
from dasfprof.recording.rows import FileRows
from dasfprof.recording.under_way.loop import Busy, Repeats
from dasfprof.schema.under_way import TASK_UNDER_WAY

#: Threshold (seconds since a task's start) from which snapshots of the task are written.
OLDER_THAN = 1.0

#: States of a task that waits for its inputs, and of a task that was cancelled while it waited.
FETCHING, RELEASED = "fetching", "released"


class _Task:
    """Facts from the earlier snapshots of one unfinished task."""

    def __init__(self, now: float) -> None:
        self.seen = now
        self.busy = Busy()
        self.repeats = Repeats(now)
        self.row: dict[str, Any] = {}


class TasksUnderWay:
    """Writes rows about the tasks of a worker. Called in one thread, once per second.

    Parameters
    ----------
    received
        Time when the worker received each task, by key. The worker's event loop adds and removes
        entries.
    rows
        Writes rows into the trace file.
    """

    def __init__(self, worker: Any, received: Mapping[Any, float], rows: FileRows) -> None:
        self._worker = worker
        self._tasks = worker.state.tasks
        self._received = received
        self._rows = rows
        #: CPU seconds that a thread had used when a snapshot first showed its task.
        self._cpu: dict[Any, float] = {}
        #: Tasks by key and thread. The key alone is not sufficient, because a cancelled task may
        #: still run while a client requests its key again.
        self._known: dict[tuple[Any, str | None], _Task] = {}

    def sample(self) -> None:
        """Take a snapshot of the worker's tasks, and write the rows that are due."""
        now = monotonic()
        current = set()
        for row in tasks_under_way(self._worker, OLDER_THAN, self._cpu):
            if row["state"] == FETCHING:
                row["since"] = self._received.get(row["key"])
            identity = row["key"], row["thread"]
            current.add(identity)
            task = self._known.get(identity)
            before = None if task is None else task.row.get("since")
            # Different times mean that the task was started again.
            if None not in (before, row["since"]) and before != row["since"]:
                self._leave(identity)
                task = None
            if task is None:
                task = self._known[identity] = _Task(now)
            self._write(task, row, now)
        for identity in self._known.keys() - current:
            self._leave(identity)

    def _write(self, task: _Task, row: dict[str, Any], now: float) -> None:
        known = task.row
        if row["since"] is None:  # The task was released, but its thread still runs it.
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
        stack = row.pop("stack")
        # While a task waits for its inputs, the arrival of an input makes no row due.
        keys = None
        if row["thread"] is not None:
            row["thread"] = int(row["thread"])  # Rows of task runs also have integers.
            keys = row["waits_keys"]
        facts = row["state"], stack, row["waits_in"], row["waits_for"], keys, row["holds"]
        task.row = row
        row["thread_state"] = task.busy.state(row["thread_state"], row["cpu"], now)
        if task.repeats.is_due(now, facts, row["thread_state"]):
            self._rows.write(TASK_UNDER_WAY, row, stack)

    def _leave(self, identity: tuple[Any, str | None]) -> None:
        """Forget a task that the last snapshot no longer contains.

        `identity` has the task's key and thread.
        """
        task = self._tasks.get(identity[0])
        # A waiting task may be missing only because a snapshot has a maximum number of tasks.
        if task is not None and task.state == "waiting":
            return
        row = self._known.pop(identity).row
        began = task is not None and task.state != "released" and task.run_id == row.get("run_id")
        # The end of a task that was executed is recorded by the event of its task run.
        if row.get("state") == FETCHING and not began:
            self._release(row)

    def _release(self, row: dict[str, Any]) -> None:
        """Write the end of a task that was never executed, and therefore has no task run.

        `row` is the row of the last snapshot that contained the task.
        """
        self._rows.write(TASK_UNDER_WAY, {**row, "state": RELEASED, "waits_keys": []})
