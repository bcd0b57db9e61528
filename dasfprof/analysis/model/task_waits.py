"""The waits of a task run, and the state of all workers when the task run was assigned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dasfprof.analysis.model.links import QUEUE, THREAD, find_links, find_predecessors
from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array
from dasfprof.text import count_of, elide, format_size

#: Names of rows about workers at the time of the assignment: the worker that got the task run, and
#: any other worker.
ASSIGNED, OTHER_WORKER = "assigned", "other worker"
#: Maximum number of other workers that are listed.
_MAXIMUM_WORKERS = 10
#: Maximum number of characters of a key in a description.
_KEY_LENGTH = 60
_NONE = float("nan")


@dataclass(frozen=True)
class WaitSegment:
    """One row in the list of a task run's waits.

    The row describes a part of the task run's time, or a worker when the task run was assigned.
    """

    name: str
    #: Title of the worker, "scheduler", or empty if unknown.
    worker: str
    #: Seconds since the start of the run.
    start: float
    #: Duration of the part in seconds. NaN if this is a worker at the time of the assignment.
    duration: float
    description: str
    #: For a worker at the time of the assignment: number of unfinished task runs that were assigned
    #: to it, and bytes of the task run's inputs on it (NaN if the location or size of an input is
    #: unknown).
    tasks: float = _NONE
    input_bytes: float = _NONE


class TaskWaits:
    """Divides the time of task runs, given as rows of `Run.all_slots`, into parts."""

    def __init__(self, run: Run) -> None:
        self._run, self._slots = run, run.all_slots
        self._titles = run.named.titles()
        self._life_of_address = {
            address: life for life, address in enumerate(run.workers["address"].tolist())
        }

    def parts(self, row: int) -> list[WaitSegment]:
        """Return the parts of a task run's time, and workers at its assignment, sorted by time."""
        at = {name: float(times[row]) for name, times in vars(self._slots.times).items()}
        sent, worker = float(self._slots.sent[row]), self._title(int(self._slots.worker[row]))
        state = unspilled = ""
        if row < len(self._run.task_runs):  # A worker's file contains it.
            size = float(self._run.task_runs["disk_read_size"].iloc[row])
            unspilled = f"{format_size(size)} of its inputs were unspilled." if size > 0 else ""
            state = f"State: {self._run.task_runs['state'].iloc[row]}."
        victim, stolen = self._steals(row) if sent > at["sent"] else ("", "")
        inputs, queue = self._last_input(row), self._queue(row)
        before = [
            ("waiting for inputs", "scheduler", at["arrival"], at["runnable"], inputs),
            ("queued on the scheduler", "scheduler", at["runnable"], at["sent"], queue),
            ("waiting on another worker", victim, at["sent"], sent, stolen),
        ]
        after = [
            ("in transit", worker, sent, at["received"], ""),
            ("fetching inputs", worker, at["received"], at["ready"], self._transfers(row)),
            ("waiting for a thread", worker, at["ready"], at["executing"], self._thread(row)),
            ("starting", worker, at["executing"], at["start"], unspilled),
            ("running", worker, at["start"], at["stop"], state),
            ("storing the result", worker, at["stop"], at["done"], ""),
            ("reporting", worker, at["done"], at["known"], ""),
        ]
        return [*_of_some_time(before), *self._workers_at(row, sent), *_of_some_time(after)]

    def _title(self, life: int) -> str:
        return self._titles[int(self._run.named.of_lives[life])]

    def _title_at(self, address: object) -> str:
        life = self._life_of_address.get(address)
        return str(address) if life is None else self._title(life)

    def _key(self, row: int) -> str:
        (key,) = self._run.keys.texts(self._key_ids[[row]])
        return elide(str(key), _KEY_LENGTH)

    @cached_property
    def _key_ids(self) -> Array:
        return self._run.of_slots("key_id", unfinished=True).astype(np.int64)

    def _inputs(self, row: int) -> tuple[Array, Array]:
        """Return the keys of a task run's inputs, and the rows of the task runs that made them.

        A row is -1 if it is unknown.
        """
        links = find_links(self._run)
        selected = links.row == row
        producers, finished = links.producer[selected], len(self._run.tasks)
        unfinished = len(self._run.task_runs) - finished
        return links.key_id[selected], producers + unfinished * (producers >= finished)

    def _last_input(self, row: int) -> str:
        keys, producers = self._inputs(row)
        known = producers[producers >= 0]
        if not len(known):
            return "The task runs that made its inputs were not recorded." if len(keys) else ""
        times = self._slots.times.known[known]
        last = int(known[np.argmax(times)])
        return (
            f"The last of {count_of(len(keys), 'input')} was {self._key(last)}, made on "
            f"{self._title(int(self._slots.worker[last]))} and reported at {times.max():.3f} s."
        )

    def _queue(self, row: int) -> str:
        before = find_predecessors(self._run, unfinished=True)
        if before.kind[row] != QUEUE:
            return "No worker could take it."
        ended = int(before.row[row])
        where = self._title(int(self._slots.worker[ended]))
        return f"Workers had no room for more tasks until {self._key(ended)} finished on {where}."

    def _steals(self, row: int) -> tuple[str, str]:
        """Return the last worker from which a task run was stolen, and a sentence about the steals.

        The worker is an empty text if it is unknown.
        """
        steals, times = self._run.steals, self._slots.times
        stolen = "It was stolen before a thread there was free."
        at = self._run.since_begin(steals["time"])
        selected = (steals["key"].to_numpy() == self._key_ids[row]) & (at >= times.sent[row])
        victims = steals["victim"].to_numpy()[selected & (at <= times.executing[row])].tolist()
        if len(victims) > 1:
            stolen = f"It was stolen {len(victims)} times before a thread was free."
        return (self._title_at(victims[-1]) if victims else ""), stolen

    def _transfers(self, row: int) -> str:
        """Return a description of the transfers of a task run's inputs before it was ready."""
        keys, _ = self._inputs(row)
        if not len(keys):
            return ""
        times, transfers = self._slots.times, self._transferred(keys)
        transfers = transfers[transfers["worker_id"] == self._slots.worker[row]]
        transfers = transfers[transfers["end"] >= times.received[row]]
        transfers = transfers[transfers["start"] <= times.ready[row]]
        if not len(transfers):
            return "No transfer of its inputs was recorded in this time."
        transfers = transfers[~transfers.index.duplicated()]
        names = ", ".join([self._title_at(source) for source in transfers["source"].unique()][:3])
        size = format_size(float(transfers["size"].sum()))
        return f"{count_of(len(transfers), 'transfer')} of {size} from {names}."

    def _transferred(self, keys: Array) -> pd.DataFrame:
        """Return a table of the transfers of `keys`, with one row per transfer and key.

        The index is the row of the transfer in `Trace.transfers`.
        """
        table, (lengths, items) = self._run.transfers, self._run.transfer_keys
        wanted = np.isin(items, keys)
        brought = table.iloc[np.repeat(np.arange(len(table)), np.maximum(lengths, 0))[wanted]]
        start = self._run.on_one_clock(brought["start"], brought["worker_id"])
        return pd.DataFrame(
            {
                "key_id": items[wanted],
                "worker_id": brought["worker_id"],
                "source": brought["source"].astype(object),
                "size": brought["size"],
                "success": brought["state"] == "success",
                "start": start,
                "end": start + brought["duration"].to_numpy(dtype=float),
            }
        )

    def _thread(self, row: int) -> str:
        before = find_predecessors(self._run, unfinished=True)
        if before.kind[row] == THREAD:
            return f"A thread was free when {self._key(int(before.row[row]))} ended."
        return "No task run is known to have occupied the thread."

    def _workers_at(self, row: int, sent: float) -> Iterator[WaitSegment]:
        """Yield the worker to which a task run was assigned at `sent`, then other workers."""
        lives, worker = self._run.lives, int(self._slots.worker[row])
        present = (lives.begin <= sent) & (sent <= lives.end) | (lives.ids == worker)
        tasks, input_bytes = self._assigned_at(row, sent), self._bytes_at(row, sent)
        ids, threads = lives.ids[present], lives.threads[present]
        # Of the other workers, those that hold more bytes of the task run's inputs come first, and
        # then those that are less busy.
        order = np.lexsort((tasks[ids] / threads, -np.nan_to_num(input_bytes[ids]), ids != worker))
        for index in order[: _MAXIMUM_WORKERS + 1].tolist():
            who = int(ids[index])
            description = f"It has {count_of(int(threads[index]), 'thread')}."
            name = ASSIGNED if who == worker else OTHER_WORKER
            amounts = float(tasks[who]), float(input_bytes[who])
            yield WaitSegment(name, self._title(who), sent, _NONE, description, *amounts)

    def _assigned_at(self, row: int, time: float) -> Array:
        """Return, for each worker, the number of other task runs in progress on it at `time`."""
        slots, unfinished = self._slots, self._run.unlisted
        sent, known = slots.sent, slots.times.known
        open_ = (sent < time) & ~(known <= time)
        open_[row] = False
        later = (unfinished.sent < time) & (unfinished.known > time)
        workers = np.concatenate([slots.worker[open_], unfinished.worker[later]]).astype(np.int64)
        return np.bincount(workers[workers >= 0], minlength=len(self._run.workers))

    def _bytes_at(self, row: int, time: float) -> Array:
        """Return, for each worker, the bytes of a task run's inputs that the worker had at `time`.

        All are NaN if the location or the size of an input is unknown.
        """
        keys, producers = self._inputs(row)
        sizes = np.zeros(len(self._run.workers))
        seen = (producers >= 0) & (producers < len(self._run.tasks))
        if not seen.all():
            return np.full(len(sizes), np.nan)
        size = dict(zip(keys.tolist(), self._run.tasks["size"].to_numpy()[producers], strict=True))
        copies = set(zip(keys.tolist(), self._slots.worker[producers].tolist(), strict=True))
        fetched = self._transferred(keys)
        fetched = fetched[fetched["success"] & (fetched["end"] <= time)]
        copies |= set(zip(fetched["key_id"], fetched["worker_id"], strict=True))
        for key, worker in copies:
            sizes[worker] += size[key]
        return sizes


def _of_some_time(stages: list[tuple[str, str, float, float, str]]) -> Iterator[WaitSegment]:
    for name, worker, start, end, description in stages:
        if end > start:
            yield WaitSegment(name, worker, start, end - start, description)
