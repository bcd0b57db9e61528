"""`Progress`: the progress of a run, computed from the scheduler's running totals."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dasfprof.schema.under_way import UNFINISHED

#: Seconds over which rates are computed.
_WINDOW = 30.0
#: Seconds between two rows of the scheduler while its totals change. Then seconds after which a
#: change is certainly in the file.
_INTERVAL, _LAG = 1.0, 2.0
#: Thresholds for unusually long tasks: seconds, and multiple of the mean of the function. If no
#: task has finished for this time, the earlier rate does not predict the remaining time.
LONG_SECONDS, LONG_TIMES = 10.0, 3.0


@dataclass(frozen=True)
class FunctionProgress:
    """Progress of the tasks of one function."""

    function: str
    done: int = 0
    #: Number of failed tasks, including tasks whose inputs failed.
    failed: int = 0
    #: Number of tasks that run on a worker or are assigned to a worker.
    on_workers: int = 0
    waiting: int = 0
    #: Number of tasks per second that finished in the last 30 s.
    rate: float = 0.0
    #: Mean compute time of successful tasks, or None. If tasks of the current batch of work have
    #: succeeded, only these count.
    mean_seconds: float | None = None

    @property
    def total(self) -> int:
        """Number of all tasks of the function that the scheduler knows."""
        return self.done + self.failed + self.on_workers + self.waiting


class _Row(NamedTuple):
    """Totals of the scheduler at one time."""

    time: float
    #: For each function: number of succeeded tasks, number of failed tasks, and compute seconds.
    finished: dict[str, tuple[int, int, float]]
    #: For each function: number of tasks on workers, and number of waiting tasks.
    unfinished: dict[str, tuple[int, int]]


class Progress:
    """Computes the progress of a run from the rows of `Scheduler State`, in the order of time."""

    def __init__(self) -> None:
        #: Rows of the last 30 s, and the row before them, so that differences cover 30 s.
        self._rows: deque[_Row] = deque()
        #: For each function: its totals before the current batch of work.
        self._before: dict[str, tuple[int, int, float]] = {}
        #: Time of the first task. Then time at which the totals last showed a newly finished task.
        self.began: float | None = None
        self._last_end: float | None = None

    def append(self, time: float, tasks: Any, finished: Any) -> None:
        """Add a recorded row, given its time and its columns `tasks` and `finished`."""
        if not isinstance(finished, Mapping):  # Older versions did not record it.
            return
        row = _Row(time, _finished(finished), _unfinished(tasks))
        if not self._rows:
            self._rows.append(_Row(time - _INTERVAL, {}, {}))
        if self.began is None and (row.finished or row.unfinished):
            self.began = time - _INTERVAL
        if row.finished != self._rows[-1].finished:
            self._last_end = time
        if row.unfinished and not self._rows[-1].unfinished:
            self._before = self._rows[-1].finished
            self._rows = deque([self._rows[-1]])
        self._rows.append(row)
        while self._rows[1].time <= time - _WINDOW:
            self._rows.popleft()

    @property
    def is_known(self) -> bool:
        """Whether the scheduler has recorded a row."""
        return bool(self._rows)

    def functions(self) -> list[FunctionProgress]:
        """Return the progress of each function, in the order of arrival at the scheduler."""
        if not self._rows:
            return []
        last, (before, seconds) = self._rows[-1], self._window()
        rows = []
        for function in dict.fromkeys([*last.finished, *last.unfinished]):
            done, failed, compute = last.finished.get(function, (0, 0, 0.0))
            earlier = before.get(function, (0, 0, 0.0))
            rate = max(done + failed - earlier[0] - earlier[1], 0) / seconds
            mean = compute / done if done else None
            first = self._before.get(function, (0, 0, 0.0))
            if done > first[0]:
                mean = (compute - first[2]) / (done - first[0])
            unfinished = last.unfinished.get(function, (0, 0))
            rows.append(FunctionProgress(function, done, failed, *unfinished, rate, mean))
        return rows

    def time_left(self, now: float) -> tuple[float | None, int]:
        """Return the estimated seconds until tasks have finished, and the number of tasks left out.

        Tasks of functions without a known mean duration are left out. The estimate is None if
        unknown.
        """
        functions = self.functions()
        unknown = sum(row.on_workers + row.waiting for row in functions if not row.mean_seconds)
        if not functions:
            return None, unknown
        # Only the current batch of work counts. Earlier batches do not predict its remaining time.
        before, seconds = self._window()
        computed = sum(row[2] for row in self._rows[-1].finished.values())
        pace = (computed - sum(row[2] for row in before.values())) / seconds
        work = sum((row.on_workers + row.waiting) * (row.mean_seconds or 0.0) for row in functions)
        if pace <= 0 or (unknown and not work):
            return None, unknown
        return max(work / pace - (now - self._rows[-1].time), 0.0), unknown

    def quiet(self, now: float) -> float | None:
        """Return the seconds since a task last finished, or None if this is not unusually long."""
        functions = self.functions()
        if self._last_end is None or not any(row.on_workers + row.waiting for row in functions):
            return None
        silence = now - _LAG - self._last_end
        longest = max((row.mean_seconds or 0.0 for row in functions), default=0.0)
        return silence if silence > max(LONG_SECONDS, LONG_TIMES * longest) else None

    def _window(self) -> tuple[dict[str, tuple[int, int, float]], float]:
        """Return the totals of finished tasks at the start of a window, and the window's seconds.

        Rates are computed over this window, which is at most the last 30 s.
        """
        rows = list(self._rows)
        # If no task finished in the first part of the 30 s, the window begins when tasks began to
        # finish.
        begin = next(
            (at for at in range(1, len(rows)) if rows[at].finished != rows[at - 1].finished), 1
        )
        start = rows[begin - 1].time
        if not rows[begin - 1].unfinished:  # There was nothing to do, so rows are 10 s apart.
            start = max(start, rows[begin].time - _INTERVAL)
        return rows[begin - 1].finished, max(rows[-1].time - start, _INTERVAL)


def _finished(columns: Mapping[Any, Any]) -> dict[str, tuple[int, int, float]]:
    return {
        str(function): (int(_number(row[0])), int(_number(row[1])), _number(row[2]))
        for function, row in columns.items()
        if isinstance(row, list | tuple) and len(row) == 3
    }


def _unfinished(tasks: Any) -> dict[str, tuple[int, int]]:
    counts = {}
    for function, states in tasks.items() if isinstance(tasks, Mapping) else ():
        if isinstance(states, Mapping):
            on_workers = int(_number(states.get("processing")))
            waiting = sum(int(_number(states.get(state))) for state in UNFINISHED) - on_workers
            if on_workers or waiting:
                counts[str(function)] = on_workers, waiting
    return counts


def _number(value: Any) -> float:
    """Return a value from a file as a number, or 0 if it is not a valid number."""
    return value if isinstance(value, int | float) and 0 < value < 1e15 else 0
