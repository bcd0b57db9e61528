"""What changed the scheduler's knowledge in a recorded run, in the order of time."""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.database.columns import Array

#: The scheduler hears of a copy within so many seconds, if no later message of its worker tells.
_HEARD = 0.25
#: Times of released results are rounded up to so many seconds.
_ROUNDED = 1 / 1024


class Change(IntEnum):
    """What changes the scheduler's state; of one moment the first of these comes first."""

    ENDED, RELEASED, DROPPED, JOINED, LEFT, PAUSED, RESUMED = range(7)
    MOVED, COPIED, HEARD, SECEDED, REQUESTED, STOLEN, SENT = range(7, 14)


class Event(NamedTuple):
    """A change: of a run (a row of `Record`), a key or a transfer, and of a worker."""

    time: float
    change: Change
    row: int
    worker: int


class Record:
    """The runs that the scheduler sent, and the changes of its state.

    The rows are those of `TaskSlots`, and after them runs that no worker is known to have finished.
    Times are seconds from the run's begin, by the scheduler's clock.

    Parameters
    ----------
    trace
        A run with its open runs: `Run.whole`.
    """

    def __init__(self, trace: Run) -> None:
        self.trace = trace
        only = trace.scheduler_only
        rest = only[~only["lost"] & only["sent"].notna()] if "sent" in only else only.iloc[:0]
        tables = [trace.tasks, trace.unseen, rest]

        def told(name: str) -> Array:
            columns = [
                table[name].to_numpy(dtype=float) if name in table else np.full(len(table), np.nan)
                for table in tables
            ]
            return np.concatenate(columns)

        def texts(name: str) -> list[object]:
            return [
                value
                for table in tables
                for value in (table[name].tolist() if name in table else [None] * len(table))
            ]

        self.key = told("key_id").astype(np.int64)
        self.worker = np.nan_to_num(told("worker_id"), nan=-1).astype(np.int64)
        self.run_id = np.nan_to_num(told("run_id"), nan=-1).astype(np.int64)
        self.sent = trace.since_begin(told("sent"))
        self.queued = trace.since_begin(told("queued"))
        self.state = texts("scheduler_state")
        ended = np.array([state != "processing" for state in self.state], dtype=bool)
        self.known = np.where(ended, trace.since_begin(told("known")), np.nan)
        self.start = trace.since_begin(told("scheduler_start"))
        self.seconds = np.maximum(told("scheduler_stop") - told("scheduler_start"), 0.0)
        size = told("size")
        self.size = np.nan_to_num(np.where(np.isnan(size), told("scheduler_size"), size))
        codes, self.functions = trace.keys.functions()
        self.function = codes[self.key]
        self.annotations = texts("annotations")
        self._offsets, self._inputs = trace.dependencies
        addresses = trace.workers["address"].tolist()
        self.address = ["" if address is None else str(address) for address in addresses]
        #: The worker that each was sent to first: it may have been stolen since.
        self.first_worker = self.worker.copy()
        self.moves = self._moves()

    def inputs(self, row: int) -> list[int]:
        """Return the keys whose results a run takes."""
        key = self.key[row]
        found: list[int] = self._inputs[self._offsets[key] : self._offsets[key + 1]].tolist()
        return found

    @cached_property
    def makers(self) -> dict[int, list[int]]:
        """The runs of each key that made a result, in the order of time."""
        found: dict[int, list[int]] = {}
        order = np.argsort(self.known, kind="stable")
        for row in order[np.isfinite(self.known[order])].tolist():
            if self.state[row] == "memory":
                found.setdefault(int(self.key[row]), []).append(row)
        return found

    def life_at(self, address: str, time: float) -> int:
        """Return the worker that had an address at a time; -1: none."""
        joined = self.trace.joined
        there = [life for life, own in enumerate(self.address) if own == address]
        there = [life for life in there if not joined[life] > time]
        return there[-1] if there else -1

    def _moves(self) -> list[Event]:
        """Return the steals, with the thief each; and set who had the runs first."""
        steals = self.trace.steals
        if not len(steals):
            return []
        rows: dict[int, list[int]] = {}
        for row in self._stolen_rows().tolist():
            rows.setdefault(int(self.key[row]), []).append(row)
        found, seen = [], set()
        table = steals.sort_values("time", kind="stable")
        columns = (table[name].tolist() for name in ("time", "requested", "key", "victim", "thief"))
        for at, asked, key, victim, thief in zip(*columns, strict=True):
            time = self.trace.seconds_at(at)
            for row in rows.get(int(key), []):
                if self.sent[row] <= time and not self.known[row] < time:
                    if row not in seen:
                        self.first_worker[row] = self.life_at(str(victim), time)
                        seen.add(row)
                    life = self.life_at(str(thief), time)
                    found.append(Event(time, Change.STOLEN, row, life))
                    # In a moment it was asked for, before anything else changed.
                    since = self.trace.seconds_at(asked)
                    begun = since if self.sent[row] <= since <= time else time
                    found.append(Event(begun, Change.REQUESTED, row, life))
        return found

    def _stolen_rows(self) -> Array:
        tables = (self.trace.tasks, self.trace.unseen)
        stolen = [
            table["stolen"].notna().to_numpy() if "stolen" in table else np.zeros(len(table), bool)
            for table in tables
        ]
        found: Array = np.flatnonzero(np.concatenate(stolen))
        return found

    @cached_property
    def events(self) -> list[Event]:
        """All changes, in the order of time."""
        found = [*self.moves, *self._copies(), *self._releases(), *self._comings()]
        rows = np.flatnonzero(np.isfinite(self.sent)).tolist()
        found += [Event(self.sent[r], Change.SENT, r, int(self.first_worker[r])) for r in rows]
        found += [
            Event(self.known[r], Change.ENDED, r, int(self.worker[r]))
            for r in rows
            if np.isfinite(self.known[r])
        ]
        tasks = self.trace.tasks
        if "seceded" in tasks and tasks["seceded"].notna().any():
            seceded = self.trace.on_one_clock(tasks["seceded"], tasks["worker_id"])
            left = np.flatnonzero(np.isfinite(seceded) & np.isfinite(self.sent[: len(tasks)]))
            found += [
                Event(seceded[r], Change.SECEDED, r, int(self.worker[r])) for r in left.tolist()
            ]
        return sorted(found)

    def _copies(self) -> list[Event]:
        """Return when results began to come to other workers, and when the scheduler surely knew.

        The recorded end of a transfer may be later than when the worker told of it.
        """
        trace = self.trace
        table, (lengths, keys) = trace.transfers, trace.transfer_keys
        if not len(table):
            return []
        began = trace.on_one_clock(table["start"], table["worker_id"])
        came = began + table["duration"].to_numpy(dtype=float)
        took = (table["state"] == "success").to_numpy(dtype=bool) & np.isfinite(came)
        worker = table["worker_id"].to_numpy()
        ends = np.r_[0, np.cumsum(np.maximum(lengths, 0))]
        heard = self._next_words(worker, came)
        found = []
        for place in np.flatnonzero(took).tolist():
            who = int(worker[place])
            found.append(Event(float(came[place]), Change.MOVED, place, who))
            for key in keys[ends[place] : ends[place + 1]].tolist():
                found.append(Event(float(began[place]), Change.COPIED, key, who))
                found.append(Event(float(heard[place]), Change.HEARD, key, who))
        return found

    def _next_words(self, worker: Array, since: Array) -> Array:
        """Return when the scheduler heard of a run that its worker ended after each time."""
        tasks = self.trace.tasks
        done = self.trace.on_one_clock(tasks["done"], tasks["worker_id"])
        known, of_run = self.known[: len(tasks)], tasks["worker_id"].to_numpy()
        heard = since + _HEARD
        for who in np.unique(worker).tolist():
            own = np.flatnonzero((of_run == who) & np.isfinite(done) & np.isfinite(known))
            own = own[np.argsort(done[own], kind="stable")]
            if len(own):
                asked = np.flatnonzero(worker == who)
                place = np.searchsorted(done[own], since[asked], side="left")
                word = np.append(known[own], np.inf)[place]
                heard[asked] = np.maximum(np.minimum(heard[asked], word), since[asked])
        return heard

    def _releases(self) -> list[Event]:
        """Return when results were let go: as their last taker ended, where that tells."""
        trace, found = self.trace, []
        if len(trace.releases):
            rows = {int(run): row for row, run in enumerate(self.run_id.tolist())}
            last = np.full(len(trace.keys), -np.inf)
            counts = np.diff(self._offsets)[self.key]
            takers = np.repeat(np.arange(len(self.key)), counts)
            first = np.repeat(self._offsets[self.key] - np.r_[0, np.cumsum(counts)[:-1]], counts)
            taken = self._inputs[first + np.arange(len(takers))] if len(takers) else takers
            np.fmax.at(last, taken, self.known[takers])
            released = zip(trace.releases["run_id"], trace.releases["time"], strict=True)
            for run, at in released:
                row, time = rows.get(int(run), -1), trace.seconds_at(at)
                if row >= 0:
                    ended = float(last[self.key[row]])
                    exact = ended if time - _ROUNDED <= ended <= time else time
                    found.append(Event(exact, Change.RELEASED, row, -1))
        dropped = trace.copies_dropped
        columns = (dropped[name] for name in ("time", "key_id", "worker_id"))
        for at, key, worker in zip(*columns, strict=True):
            found.append(Event(trace.seconds_at(at), Change.DROPPED, int(key), int(worker)))
        return found

    def _comings(self) -> list[Event]:
        """Return when workers joined, left, paused and went on."""
        trace, found = self.trace, []
        for life, (joined, left) in enumerate(zip(trace.joined, trace.left, strict=True)):
            if self.trace.workers["kind"].iloc[life] == "worker":
                since = joined if np.isfinite(joined) else -np.inf
                found.append(Event(since, Change.JOINED, -1, life))
                if np.isfinite(left):
                    found.append(Event(left, Change.LEFT, -1, life))
        kinds = {"pause": Change.PAUSED, "retire": Change.PAUSED, "resume": Change.RESUMED}
        changes = (trace.cluster_changes[name] for name in ("time", "action", "workers"))
        for at, action, workers in zip(*changes, strict=True):
            time = trace.seconds_at(at)
            for address in workers or () if action in kinds else ():
                life = self.life_at(str(address), time)
                if life >= 0:
                    found.append(Event(time, kinds[action], -1, life))
        return found
