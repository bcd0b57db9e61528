"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import time
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.describe import type_name
from dasfprof.recording.facts import CLOCK, COMPUTE, TRANSFER
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.run_queue import run_queue_seconds

#: First items of the notes. A change of state begins with the state's name instead:
#: (state, key, time, scheduler_delay).
FINISHED, FETCHED, FORGOTTEN = "dasfprof-finished", "dasfprof-fetched", "dasfprof-forgotten"
#: As FINISHED, of a task of which only the times that were noted tell whether it was running.
PERHAPS_FINISHED = "dasfprof-perhaps-finished"

#: Texts of types and dtypes kept at a time; types made at run time must not pile up.
_MAX_TEXTS = 10_000


class _Correction:
    """Dask's clock correction: start and stop of a task are shifted by what is in force."""

    __slots__ = ("following", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.following: _Correction | None = None


class _StateTimes:
    """When a task that has not finished yet came to each state on this worker."""

    __slots__ = ("correction", "executing", "ready", "received", "seceded")

    def __init__(self) -> None:
        self.received: float | None = None
        self.ready: float | None = None
        self.executing: float | None = None
        self.seceded: float | None = None
        #: In force as the task was given a thread.
        self.correction: _Correction | None = None


class TaskFolder:
    """Folds the notes of one worker, slice by slice, in the order in which they were made.

    Parameters
    ----------
    guard
        Takes the errors that a note causes; the other notes are folded all the same.
    delay
        Dask's clock correction as recording begins, seconds.
    """

    def __init__(self, guard: HookGuard, delay: float) -> None:
        self._guard = guard
        self._correction = _Correction(delay)
        self._live: dict[Any, _StateTimes] = {}
        self._texts: dict[Any, str] = {}
        self._compute: list[tuple[Any, ...]] = []
        self._transfers: list[tuple[Any, ...]] = []
        self._clocks: list[tuple[Any, ...]] = [(time(), delay)]

    def fold(self, notes: list[tuple[Any, ...]]) -> Folded:
        """Give the rows that these notes complete."""
        self._guard.each(notes, self._fold_notes)
        folded, first = [], 0
        for schema, rows in (
            (COMPUTE, self._compute),
            (TRANSFER, self._transfers),
            (CLOCK, self._clocks),
        ):
            folded.append((schema, rows, range(first, first + len(rows))))
            first += len(rows)
        self._compute, self._transfers, self._clocks = [], [], []
        return folded

    def _fold_notes(self, notes: Iterator[tuple[Any, ...]]) -> None:
        for note in notes:
            kind = note[0]
            if kind is FINISHED:
                self._finish(note)
            elif kind is FETCHED:
                self._fetch(note)
            elif kind is FORGOTTEN:
                self._live.pop(note[1], None)
            elif kind is PERHAPS_FINISHED:
                times = self._live.get(note[1])
                if times is not None and times.executing is not None:
                    self._finish(note)
            else:
                self._change(note)

    def _change(self, note: tuple[Any, ...]) -> None:
        state, key, now, delay = note
        if delay != self._correction.seconds:
            self._correct(now, delay)
        times = self._live.get(key)
        if times is None:
            times = self._live[key] = _StateTimes()
        if state == "executing":
            times.executing, times.correction = now, self._correction
        elif state == "waiting":
            # A cancelled run that is wanted again before it ended comes by here, and goes on.
            if times.executing is None:
                times.received = now
        elif state == "long-running":
            times.seceded = now
        else:  # ready, constrained
            times.ready = now

    def _correct(self, now: float, delay: float) -> None:
        self._correction.following = _Correction(delay)
        self._correction = self._correction.following
        self._clocks.append((now, delay))

    def _finish(self, note: tuple[Any, ...]) -> None:
        (_, key, prefix, run_id, state, size, kind, dtype, shape, dependencies, input_size) = note[
            :11
        ]
        thread, start, stop, done, delay, metrics, readings, exception = note[11:]
        if delay != self._correction.seconds:
            self._correct(done, delay)
        times = self._live.pop(key, None) or _StateTimes()
        if start is None:  # Dask does not say: it was rescheduled, or failed before its function
            begin, duration = times.executing or done, done - (times.executing or done)
        else:
            duration = stop - start
            begin = self._uncorrected(start, duration, done, times)
        seconds = _sum_metrics(metrics)
        cpu = seconds.get(("thread-cpu", "seconds"))
        if metrics and cpu is None:  # a coroutine: many at a time share the loop's thread
            thread = None
        self._compute.append(
            (
                begin,
                max(0.0, duration),  # the clock may have been set back
                key,
                prefix or key_split(key),
                -1 if run_id is None else run_id,
                state,
                size,
                self._type_text(kind) if state == "memory" else None,
                self._dtype_text(dtype),
                shape,
                dependencies,
                input_size,
                thread,
                cpu,
                run_queue_seconds(readings),
                times.received,
                times.ready,
                times.executing,
                times.seceded,
                done,
                seconds.get(("deserialize", "seconds"), 0.0),
                seconds.get(("disk-read", "seconds"), 0.0),
                int(seconds.get(("disk-read", "bytes"), 0)),
                seconds.get(("executor", "seconds"), 0.0),
                exception,
            )
        )

    def _uncorrected(self, start: float, duration: float, done: float, times: _StateTimes) -> float:
        """Give a start in the worker's own time.

        Dask's correction is read a little after the task was given a thread, and a heartbeat may
        have changed it in between: the first one counts that fits what else is known.
        """
        earliest, latest = times.executing or 0.0, done - duration
        correction = times.correction or self._correction
        while not earliest <= start - correction.seconds <= latest:
            if correction.following is None:  # the clock was set, or what was in force is not known
                return max(earliest, min(start - self._correction.seconds, latest))
            correction = correction.following
        return float(start - correction.seconds)

    def _fetch(self, note: tuple[Any, ...]) -> None:
        _, start, duration, source, keys, size, state, metrics = note
        seconds = _sum_metrics(metrics)
        self._transfers.append(
            (
                start,
                duration,
                source,
                keys,
                size,
                state,
                seconds.get(("network", "seconds"), 0.0),
                seconds.get(("deserialize", "seconds"), 0.0),
            )
        )

    def _type_text(self, kind: type | None) -> str | None:
        try:
            return self._remembered(kind, type_name)
        except Exception:  # what a type answers is up to its metaclass
            self._guard.caught("naming a type")
            return None

    def _dtype_text(self, dtype: Any) -> str | None:
        """Name a dtype. Those of pandas may hold data (categories), so they are not kept."""
        if dtype is None:
            return None
        return self._remembered(dtype, str) if isinstance(dtype, np.dtype) else str(dtype)

    def _remembered(self, described: Any, name: Callable[[Any], str]) -> str:
        text = self._texts.get(described)
        if text is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            text = self._texts[described] = name(described)
        return text


def _sum_metrics(metrics: Any) -> dict[tuple[str, str], float]:
    """Sum a ledger's (label, value, unit) by label and unit."""
    sums: dict[tuple[str, str], float] = {}
    for label, value, unit in metrics:
        sums[label, unit] = sums.get((label, unit), 0.0) + value
    return sums
