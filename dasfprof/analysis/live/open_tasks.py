"""`OpenTasks`: the tasks of a worker that had begun and not ended when its file was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.analysis.trace.keys import as_key_column
from dasfprof.database import keys
from dasfprof.database.block_codec import Batch
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import STACK, TASK_UNDER_WAY

#: What is read of each kind of event.
WANTED = {
    STACK.name: ("number", "frames", "parent"),
    TASK_UNDER_WAY.name: ("key", "state", "since", "stack", "waits_in", "waits_for"),
    COMPUTE.name: ("key",),
}

#: Seconds after which a task that still ran would have been written again: it is every 60 s.
_FORGOTTEN = 90.0
_MOST_STACKS = 10_000
_LONGEST = 1000


@dataclass(frozen=True)
class OpenTask:
    """A task under way, as it was last written."""

    key: str
    function: str
    state: str
    #: Unix seconds, by the worker's clock.
    since: float
    #: When it was written.
    seen: float
    #: The frames of its stack as they were recorded.
    frames: tuple[Any, ...]
    waits: str | None


class OpenTasks:
    """The tasks under way of one file."""

    def __init__(self) -> None:
        self._stacks: dict[int, tuple[Any, ...]] = {}
        self._tasks: dict[tuple[keys.Head, tuple[int, ...]], OpenTask] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def at(self, now: float) -> list[OpenTask]:
        """Return those that are under way."""
        return [task for task in self._tasks.values() if now - task.seen < _FORGOTTEN]

    def take(self, batches: Iterable[Batch]) -> None:
        """Take what was written at once: kinds of events are in blocks of their own, in any order.

        A task whose end is in these batches has ended, unless it was seen again after that.
        """
        ordered: dict[str, list[Batch]] = {name: [] for name in WANTED}
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
        columns = (_values(batch, name) for name in WANTED[STACK.name])
        for number, frames, parent in zip(*columns, strict=True):
            self._stacks[number] = (*self._stacks.get(parent, ()), *(frames or ()))

    def _add_tasks(self, batch: Batch) -> None:
        column = as_key_column(batch.args["key"])
        identities = zip(column.codes.tolist(), map(tuple, column.tails.tolist()), strict=True)
        rows = zip(
            batch.fields["timestamp"].to_list(),
            column.to_list(),
            *(_values(batch, name) for name in WANTED[TASK_UNDER_WAY.name][1:]),
            strict=True,
        )
        for (code, tail), (seen, key, state, since, stack, kind, name) in zip(
            identities, rows, strict=True
        ):
            self._tasks[column.heads[code], tail] = OpenTask(
                _short(str(key)),
                key_split(key),
                str(state),
                float(since if since is not None else seen),
                seen,
                self._stacks.get(stack, ()),
                _waits(kind, name),
            )

    def _remove_ended(self, batch: Batch) -> None:
        column = as_key_column(batch.args["key"])
        begins, spans = (np.array(batch.fields[x].to_list()) for x in ("timestamp", "duration"))
        places = {head: place for place, head in enumerate(column.heads)}
        for identity, task in list(self._tasks.items()):
            head, tail = identity
            if head in places:
                rows = (column.codes == places[head]) & (column.tails == tail).all(axis=1)
                if (begins[rows] + spans[rows] >= task.seen).any():
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
