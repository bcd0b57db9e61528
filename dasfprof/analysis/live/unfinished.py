"""`Unfinished`: the tasks that the scheduler has yet to see done, by function."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.database.columns import Array

#: States of tasks, in Dask's words.
_ON_WORKERS, _WAITING = "processing", ("waiting", "queued", "no-worker")


@dataclass(frozen=True)
class EndedRuns:
    """Task runs that ended for good: run ``i`` is one of ``names[codes[i]]``."""

    names: list[str]
    codes: Array
    #: Unix seconds.
    ends: Array

    def after(self, time: float) -> EndedRuns:
        """Return those that ended later."""
        late = self.ends > time
        return EndedRuns(self.names, self.codes[late], self.ends[late])


class Unfinished:
    """The scheduler's last count of unfinished tasks, less those that ended after it.

    The scheduler counts about once a second, and ended task runs are written about once a second,
    so the two are put together by their times.
    """

    def __init__(self) -> None:
        #: When the scheduler last counted, in Unix seconds; None: never.
        self.counted: float | None = None
        self._on_workers: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        #: What ended after the last count.
        self._ended: list[EndedRuns] = []

    def take(self, ended: list[EndedRuns], counts: list[tuple[float, Any]]) -> None:
        """Take what was read at once.

        Parameters
        ----------
        ended
            Task runs.
        counts
            When the scheduler counted, in Unix seconds, and the number of tasks by function and
            state, a dict of dicts.
        """
        time, tasks = max(counts, key=lambda count: count[0], default=(0.0, None))
        if isinstance(tasks, dict) and time >= (self.counted or 0.0):
            self.counted = time
            self._on_workers.clear()
            self._waiting.clear()
            for function, states in tasks.items():
                if isinstance(states, dict):
                    self._on_workers[str(function)] += _number(states.get(_ON_WORKERS))
                    self._waiting[str(function)] += sum(_number(states.get(x)) for x in _WAITING)
        if self.counted is not None:
            late = (runs.after(self.counted) for runs in (*self._ended, *ended))
            self._ended = [runs for runs in late if len(runs.ends)]

    def now(self) -> dict[str, tuple[int, int]]:
        """Return how many tasks of each function are on workers, and how many wait."""
        ended: Counter[str] = Counter()
        for runs in self._ended:
            counts = np.bincount(runs.codes, minlength=len(runs.names)).tolist()
            ended.update(dict(zip(runs.names, counts, strict=True)))
        found = {}
        for function in self._on_workers.keys() | self._waiting.keys():
            there, waiting = self._on_workers[function], self._waiting[function]
            left = max(there + waiting - ended[function], 0)
            if left:
                found[function] = min(there, left), left - min(there, left)
        return found


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
