"""What the scheduler knew at each moment of a recorded run: who held what, and who had what to do.

Some of what it knew is not recorded, as when it heard of a copy, or of tasks that run longer than
others did: there the state has two values, between which the true one lies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dasfprof.analysis.simulation.placement import UNKNOWN_DURATION
from dasfprof.analysis.simulation.recorded_changes import Event, Record

#: Bytes a second with which Dask begins; a transfer of more bytes changes a worker's own estimate,
#: of which the new one has such a share. The scheduler has followed them all after so many seconds.
_BANDWIDTH, _TELLING, _SHARE, _FOLLOWED = 100e6, 1_000_000, 0.05, 5.0
#: Seconds that Dask takes functions of these names to last, before it has seen one.
_KNOWN = dict.fromkeys(("rechunk-split", "split-shuffle", "split-taskshuffle", "split-stage"), 1e-6)


class View(NamedTuple):
    """Which of two values each unsure fact has: the usual one, or the other one."""

    longer: bool = False
    faster: bool = False
    copied: bool = False


@dataclass
class _Worker:
    """What the scheduler knows of a worker."""

    threads: int
    running: bool = True
    nbytes: float = 0.0
    network: float = 0.0


class SchedulerState:
    """What the scheduler knew, after the events that it has taken.

    Parameters
    ----------
    record
        The run.
    """

    def __init__(self, record: Record) -> None:
        self.record, self.now = record, -np.inf
        threads = record.trace.lives.threads
        ids = record.trace.lives.ids.tolist()
        self._threads = dict(zip(ids, threads.tolist(), strict=True))
        #: Those that are there.
        self.workers: dict[int, _Worker] = {}
        #: Of each, the runs that it was sent; those of them that gave their threads back.
        self.processing: dict[int, set[int]] = {}
        self.seceded: set[int] = set()
        #: Runs that the scheduler has asked for, to move them.
        self.in_flight: set[int] = set()
        #: Who holds each result, and who may, of whom it is not known whether the scheduler knew.
        self.holders: dict[int, set[int]] = {}
        self.maybe: dict[int, set[int]] = {}
        self.sizes: dict[int, float] = {}
        self._needs: dict[int, dict[int, int]] = {}
        #: Of each function, between which seconds the scheduler's mean lies; and its runs.
        self._means: dict[int, tuple[float, float]] = {
            code: (_KNOWN[name], _KNOWN[name])
            for code, name in enumerate(record.functions)
            if name in _KNOWN
        }
        self._running: dict[int, set[int]] = {}
        self._bandwidths: dict[int, float] = {}
        self._recent: deque[tuple[float, float]] = deque()

    @property
    def total_threads(self) -> int:
        """The threads of all workers."""
        return sum(worker.threads for worker in self.workers.values())

    def take(self, event: Event) -> None:
        """Take a change."""
        self.now = event.time
        getattr(self, f"_{event.change.name.lower()}")(event.row, event.worker)

    def _joined(self, _: int, who: int) -> None:
        self.workers[who] = _Worker(self._threads.get(who, 1))
        self.processing[who], self._needs[who] = set(), {}

    def _left(self, _: int, who: int) -> None:
        self.workers.pop(who, None)
        for held in (*self.holders.values(), *self.maybe.values()):
            held.discard(who)

    def _paused(self, _: int, who: int, *, running: bool = False) -> None:
        if who in self.workers:
            self.workers[who].running = running

    def _resumed(self, _: int, who: int) -> None:
        self._paused(_, who, running=True)

    def _copied(self, key: int, who: int) -> None:
        self.maybe.setdefault(key, set()).add(who)

    def _requested(self, row: int, _: int) -> None:
        self.in_flight.add(row)

    def _stolen(self, row: int, who: int) -> None:
        self.in_flight.discard(row)
        self._withdraw(row)
        self._sent(row, who)

    def _seceded(self, row: int, _: int) -> None:
        self.seceded.add(row)
        self._learn(row, self.now - float(self.record.start[row]))

    def _heard(self, key: int, who: int) -> None:
        self.maybe.get(key, set()).discard(who)
        if self.holders.get(key):
            self._hold(key, who)

    def _released(self, row: int, _: int) -> None:
        key = int(self.record.key[row])
        for holder in list(self.holders.get(key, ())):
            self._drop(key, holder)

    def _sent(self, row: int, who: int) -> None:
        if who not in self.workers:
            return
        self.processing[who].add(row)
        self._running.setdefault(int(self.record.function[row]), set()).add(row)
        for key in self.record.inputs(row):
            if who not in self.holders.get(key, ()):
                needs = self._needs[who]
                if key not in needs:
                    self.workers[who].network += self.sizes.get(key, 0.0)
                needs[key] = needs.get(key, 0) + 1

    def _withdraw(self, row: int) -> None:
        self._running.get(int(self.record.function[row]), set()).discard(row)
        for who, runs in self.processing.items():
            if row in runs:
                runs.discard(row)
                for key in self.record.inputs(row):
                    self._need_no_more(who, key, 1)
        self.seceded.discard(row)

    def _need_no_more(self, who: int, key: int, times: int) -> None:
        needs = self._needs[who]
        if key in needs:
            needs[key] -= times
            if needs[key] <= 0:
                del needs[key]
                if who in self.workers:
                    worker = self.workers[who]
                    worker.network = max(worker.network - self.sizes.get(key, 0.0), 0.0)

    def _ended(self, row: int, who: int) -> None:
        had = row not in self.seceded
        self._withdraw(row)
        if self.record.state[row] != "memory":
            return
        if had or not np.isfinite(self.record.seconds[row]):
            self._learn(row, float(self.record.seconds[row]))
        key = int(self.record.key[row])
        self.sizes[key] = float(self.record.size[row])
        self.holders.setdefault(key, set())
        if who in self.workers:
            self._hold(key, who)

    def _learn(self, row: int, seconds: float) -> None:
        """Take how long a run lasted into the mean of its function.

        A heartbeat that came while one ran for twice the mean has made the scheduler forget that.
        """
        if not np.isfinite(seconds):
            return
        code = int(self.record.function[row])
        low, high = self._means.get(code, (-1.0, -1.0))
        if low < 0:
            self._means[code] = (seconds, seconds)
            return
        means = [(seconds + low) / 2, (seconds + high) / 2]
        oldest = max(seconds, self._oldest(code))
        self._means[code] = (
            (min([*means, seconds]), max([*means, seconds]))
            if (oldest > 2 * low)
            else (means[0], means[1])
        )

    def _oldest(self, code: int) -> float:
        """Return for how long the run of a function has been running that began first."""
        starts = self.record.start[list(self._running.get(code, ()))]
        ages = self.now - starts[starts < self.now]
        return float(ages.max(initial=0.0))

    def _hold(self, key: int, who: int) -> None:
        if who not in self.workers or who in self.holders.setdefault(key, set()):
            return
        self._need_no_more(who, key, self._needs[who].get(key, 0))
        self.holders[key].add(who)
        self.workers[who].nbytes += self.sizes.get(key, 0.0)

    def _dropped(self, key: int, who: int) -> None:
        """Drop a copy: the scheduler does so only where it knows of another one."""
        if self.holders.get(key) == {who}:
            for other in self.maybe.get(key, set()) - {who}:
                self._hold(key, other)
        self._drop(key, who)

    def _drop(self, key: int, who: int) -> None:
        if who in self.holders.get(key, ()):
            self.holders[key].discard(who)
            if who in self.workers:
                self.workers[who].nbytes -= self.sizes.get(key, 0.0)

    def _moved(self, place: int, who: int) -> None:
        """Take a transfer into its worker's estimate of the bandwidth."""
        transfer = self.record.trace.transfers.iloc[place]
        size, seconds = float(transfer["size"]), float(transfer["duration"])
        if size > _TELLING:
            old = self._bandwidths.get(who, _BANDWIDTH)
            self._recent.append((self.now, old))
            self._bandwidths[who] = old + _SHARE * (size / max(seconds, 0.001) - old)

    # --- What follows from it, by the two values of what is unsure --------------------------------

    def bandwidth(self, view: View) -> float:
        """Return the bytes a second that the scheduler counted with."""
        while self._recent and self._recent[0][0] < self.now - _FOLLOWED:
            self._recent.popleft()
        first = self._bandwidths.values()
        own = [*first, *([_BANDWIDTH] * (len(first) < len(self.workers)))] or [_BANDWIDTH]
        if view.faster:
            return max([*own, *(value for _, value in self._recent)])
        return min([*own, *(value for _, value in self._recent)])

    def duration(self, code: int, view: View) -> float:
        """Return the seconds that the scheduler took a function to last."""
        low, high = self._means.get(code, (-1.0, -1.0))
        oldest = self._oldest(code)
        if low < 0:
            both = (UNKNOWN_DURATION, 2 * oldest) if oldest > 0 else (UNKNOWN_DURATION,) * 2
            low, high = min(both), max(both)
        elif oldest > 2 * low:
            low, high = min(low, 2 * oldest), max(high, 2 * oldest)
        return high if view.longer else low

    def occupancy(self, who: int, view: View) -> float:
        """Return the seconds of work that the scheduler expected a worker to have."""
        counts: dict[int, int] = {}
        for row in self.processing[who]:
            if row not in self.seceded:
                code = int(self.record.function[row])
                counts[code] = counts.get(code, 0) + 1
        work = sum(count * self.duration(code, view) for code, count in counts.items())
        return work + self.workers[who].network / self.bandwidth(view)

    def missing_bytes(self, row: int, who: int, view: View) -> float:
        """Return the bytes of a run's inputs that a worker does not hold."""
        return sum(
            self.sizes.get(key, 0.0)
            for key in self.record.inputs(row)
            if who not in self.holders.get(key, ())
            and not (view.copied and who in self.maybe.get(key, ()))
        )

    def holders_of(self, key: int, view: View) -> set[int]:
        """Return the workers that held a result."""
        held = self.holders.get(key, set())
        return held | self.maybe.get(key, set()) if view.copied and held else held
