"""`Workers`: the last signs of each worker and its open tasks, from all files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.analysis.live.state import OpenTask, WorkerState
from dasfprof.analysis.trace.keys import KeyTable, as_key_column
from dasfprof.database.block_codec import Batch
from dasfprof.database.following import FollowedFile
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, WORKER_ADDED, WORKER_REMOVED
from dasfprof.schema.under_way import STACK, TASK_UNDER_WAY

# --- `OpenTasks`: the tasks of a worker that had begun and not ended when its file was written ----

#: What is read of each kind of event.
OF_TASKS = {
    STACK.name: ("number", "frames", "parent"),
    TASK_UNDER_WAY.name: ("key", "state", "since", "stack", "waits_in", "waits_for"),
    COMPUTE.name: ("key",),
}

#: Seconds after which a task that still ran would have been written again: it is every 60 s.
_FORGOTTEN = 90.0
_MOST_STACKS = 10_000
_LONGEST = 1000


class OpenTasks:
    """The tasks under way of one file."""

    def __init__(self) -> None:
        self._stacks: dict[int, tuple[Any, ...]] = {}
        #: By the hash of their keys.
        self._tasks: dict[int, OpenTask] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def at(self, now: float) -> list[OpenTask]:
        """Return those that are under way."""
        return [task for task in self._tasks.values() if now - task.seen < _FORGOTTEN]

    def take(self, batches: Iterable[Batch]) -> None:
        """Take what was written at once: kinds of events are in blocks of their own, in any order.

        A task whose end is in these batches has ended, unless it was seen again after that.
        """
        ordered: dict[str, list[Batch]] = {name: [] for name in OF_TASKS}
        for batch in batches:
            if batch.name in ordered:
                ordered[batch.name].append(batch)
        for batch in ordered[STACK.name]:
            self._add_stacks(batch)
        for batch in ordered[TASK_UNDER_WAY.name]:
            self._add_tasks(batch)
        if self._tasks:
            for batch in ordered[COMPUTE.name]:
                self._remove_ended(batch)

    def _add_stacks(self, batch: Batch) -> None:
        if len(self._stacks) > _MOST_STACKS:
            self._stacks.clear()
        columns = (_values(batch, name) for name in OF_TASKS[STACK.name])
        for number, frames, parent in zip(*columns, strict=True):
            self._stacks[number] = (*self._stacks.get(parent, ()), *(frames or ()))

    def _add_tasks(self, batch: Batch) -> None:
        column = as_key_column(batch.args["key"])
        rows = zip(
            KeyTable.of(column).hashes().tolist(),
            batch.fields["timestamp"].to_list(),
            column.to_list(),
            *(_values(batch, name) for name in OF_TASKS[TASK_UNDER_WAY.name][1:]),
            strict=True,
        )
        for identity, seen, key, state, since, stack, kind, name in rows:
            self._tasks[identity] = OpenTask(
                _short(str(key)),
                key_split(key),
                str(state),
                float(since if since is not None else seen),
                seen,
                self._stacks.get(stack, ()),
                _waits(kind, name),
            )

    def _remove_ended(self, batch: Batch) -> None:
        hashes = KeyTable.of(as_key_column(batch.args["key"])).hashes()
        begins, spans = (np.array(batch.fields[x].to_list()) for x in ("timestamp", "duration"))
        for identity, task in list(self._tasks.items()):
            if (begins + spans >= task.seen)[hashes == identity].any():
                del self._tasks[identity]


def _short(text: str) -> str:
    """Leave out the middle of a text that no view shows whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def _values(batch: Batch, name: str) -> list[Any]:
    column = batch.args.get(name)
    return [None] * batch.rows if column is None else column.to_list()


def _waits(kind: Any, name: Any) -> str | None:
    if not kind:
        return None
    names = ", ".join(map(repr, name)) if isinstance(name, list | tuple) else repr(name)
    return str(kind) if name is None else f"{kind} {names}"


#: What is read of each kind of event.
WANTED = {
    MANAGED_MEMORY.name: ("executing", "ready", "state"),
    RESOURCE_USAGE.name: ("memory",),
    **OF_TASKS,
}
_WITHOUT_ENDED = {name: args for name, args in WANTED.items() if name != COMPUTE.name}
#: The same in the scheduler's file.
WANTED_OF_SCHEDULER = {
    WORKER_ADDED.name: ("worker", "name", "host", "nthreads", "memory_limit"),
    WORKER_REMOVED.name: ("worker",),
}


@dataclass
class _Worker:
    address: str
    name: str = ""
    host: str = ""
    threads: int | None = None
    memory_limit: float | None = None
    memory: float | None = None
    executing: int | None = None
    ready: int | None = None
    status: str | None = None
    files: list[FollowedFile] = field(default_factory=list)
    tasks: OpenTasks = field(default_factory=OpenTasks)


class Workers:
    """The workers of a run, by address."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        #: When each joined and left last, by the scheduler's clock.
        self._joined: dict[str, float] = {}
        self._left: dict[str, float] = {}
        #: What the scheduler last said of each.
        self._at_scheduler: dict[str, dict[str, Any]] = {}

    def add_file(self, file: FollowedFile) -> None:
        """Take what the header of a worker's file says."""
        facts = file.header.get("worker")
        if not isinstance(facts, dict):
            return
        worker = self._of(file)
        worker.files.append(file)
        worker.name, worker.host = str(facts.get("name")), str(file.header.get("host", ""))
        worker.threads = _whole(facts.get("nthreads"))
        worker.memory_limit = facts.get("memory_limit") or None

    def read(self, file: FollowedFile) -> list[Batch]:
        """Read what was appended to a worker's file.

        Ended task runs are many, and are only read where they may end a task that is open.
        """
        begin, open_tasks = file.position, len(self._of(file).tasks)
        batches = list(file.read(WANTED if open_tasks else _WITHOUT_ENDED))
        if not open_tasks and any(batch.name == TASK_UNDER_WAY.name for batch in batches):
            file.position = begin
            batches = list(file.read(WANTED))
        return batches

    def take(self, file: FollowedFile, batches: list[Batch]) -> None:
        """Take what was appended to a worker's file."""
        worker = self._of(file)
        for batch in batches:
            if not batch.rows:
                continue
            if batch.name == MANAGED_MEMORY.name:
                worker.executing = _whole(_last(batch, "executing"))
                worker.ready = _whole(_last(batch, "ready"))
                worker.status = _last(batch, "state")
            elif batch.name == RESOURCE_USAGE.name:
                worker.memory = _last(batch, "memory")
        worker.tasks.take(batches)

    def take_from_scheduler(self, batches: list[Batch]) -> None:
        """Take which workers joined and left."""
        for batch in batches:
            if batch.name not in WANTED_OF_SCHEDULER:
                continue
            columns = {name: column.to_list() for name, column in batch.args.items()}
            times = batch.fields["timestamp"].to_list()
            if batch.name == WORKER_ADDED.name:
                self._joined |= dict(zip(columns["worker"], times, strict=True))
                for row, address in enumerate(columns["worker"]):
                    worker = self._worker(address)
                    worker.name = worker.name or str(columns["name"][row])
                    worker.host = worker.host or str(columns["host"][row])
                    worker.threads = worker.threads or _whole(columns["nthreads"][row])
                    worker.memory_limit = worker.memory_limit or columns["memory_limit"][row]
            elif batch.name == WORKER_REMOVED.name:
                self._left |= dict(zip(columns["worker"], times, strict=True))

    def take_state(self, told: Any) -> None:
        """Take what the scheduler had of its workers."""
        if isinstance(told, list):
            known = [facts for facts in told if isinstance(facts, dict) and "worker" in facts]
            self._at_scheduler = {str(facts["worker"]): facts for facts in known}

    def states(self) -> list[WorkerState]:
        """Return the workers that have not left, sorted by name."""
        return sorted(map(self._state, self._there()), key=_by_name)

    def open_tasks(self) -> list[tuple[str, float, OpenTask]]:
        """Return the tasks under way: the worker's name, the time by its clock, the task."""
        return [
            (worker.name, now, task)
            for worker in self._there()
            for now in [_now(worker)]
            for task in worker.tasks.at(now)
        ]

    def left(self) -> set[str]:
        """Return the addresses of the workers that have left."""
        return self._workers.keys() - {worker.address for worker in self._there()}

    def _there(self) -> list[_Worker]:
        """Return the workers that have not left."""
        return [
            worker
            for address, worker in self._workers.items()
            if address not in self._left or self._joined.get(address, 0.0) > self._left[address]
        ]

    def _of(self, file: FollowedFile) -> _Worker:
        facts = file.header.get("worker")
        return self._worker(str(facts.get("address") if isinstance(facts, dict) else ""))

    def _worker(self, address: str) -> _Worker:
        return self._workers.setdefault(address, _Worker(address))

    def _state(self, worker: _Worker) -> WorkerState:
        told = self._at_scheduler.get(worker.address, {})
        executing, ready = worker.executing, worker.ready
        if executing is None:
            executing = _whole(told.get("executing"))
        open_tasks = None if executing is None or ready is None else executing + ready
        if open_tasks is None:
            open_tasks = _whole(told.get("processing"))
        grew = [file.now() - file.clock for file in worker.files if file.clock is not None]
        return WorkerState(
            worker.name,
            worker.host,
            worker.address,
            worker.threads,
            executing if executing is None else min(executing, worker.threads or executing),
            worker.status or told.get("status"),
            worker.memory if worker.memory is not None else told.get("memory"),
            worker.memory_limit or told.get("memory_limit") or None,
            open_tasks,
            max(min(grew), 0.0) if grew else None,
        )


def _now(worker: _Worker) -> float:
    return worker.files[0].now() if worker.files else 0.0


def _last(batch: Batch, name: str) -> Any:
    """Return the last value of a column that is known."""
    column = batch.args.get(name)
    values = column.to_list() if column is not None else []
    return next((value for value in reversed(values) if value is not None), None)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value else None  # noqa: PLR0124  (NaN)


def _by_name(worker: WorkerState) -> tuple[str, int, str]:
    number = int(worker.name) if worker.name.isdecimal() else -1
    return worker.host, number, worker.name
