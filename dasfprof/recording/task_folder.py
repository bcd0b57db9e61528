"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.describe import type_name
from dasfprof.recording.facts import CLOCK, COMPUTE, TRANSFER

#: First items of the notes. A change of state begins with the state's name instead:
#: (state, key, time, scheduler_delay).
FINISHED, FETCHED, FORGOTTEN = "dasfprof-finished", "dasfprof-fetched", "dasfprof-forgotten"

#: Texts of types and dtypes kept at a time; types made at run time must not pile up.
_MAX_TEXTS = 10_000


class _StateTimes:
    """When a task that has not finished yet came to each state on this worker."""

    __slots__ = ("delay", "executing", "ready", "received", "seceded")

    def __init__(self) -> None:
        self.received: float | None = None
        self.ready: float | None = None
        self.executing: float | None = None
        self.seceded: float | None = None
        #: Dask's clock correction when the task began: its start and stop are shifted by it.
        self.delay: float | None = None


class TaskFolder:
    """Folds the notes of one worker, slice by slice, in the order in which they were made."""

    def __init__(self) -> None:
        self._live: dict[Any, _StateTimes] = {}
        self._delay: float | None = None
        self._texts: dict[Any, str] = {}
        self._compute: list[tuple[Any, ...]] = []
        self._transfers: list[tuple[Any, ...]] = []
        self._clocks: list[tuple[Any, ...]] = []

    def fold(self, notes: list[tuple[Any, ...]]) -> Folded:
        """Give the rows that these notes complete."""
        for note in notes:
            kind = note[0]
            if kind is FINISHED:
                self._finish(note)
            elif kind is FETCHED:
                self._fetch(note)
            elif kind is FORGOTTEN:
                self._live.pop(note[1], None)
            else:
                self._change(note)
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

    def _change(self, note: tuple[Any, ...]) -> None:
        state, key, now, delay = note
        if delay != self._delay:
            self._delay = delay
            self._clocks.append((now, delay))
        times = self._live.get(key)
        if times is None:
            times = self._live[key] = _StateTimes()
        if state == "executing":
            times.executing, times.delay = now, delay
        elif state == "waiting":
            times.received = now
        elif state == "long-running":
            times.seceded = now
        else:  # ready, constrained
            times.ready = now

    def _finish(self, note: tuple[Any, ...]) -> None:
        (_, key, prefix, run_id, state, size, kind, dtype, shape, dependencies, input_size) = note[
            :11
        ]
        thread, start, stop, done, metrics, exception = note[11:]
        times = self._live.pop(key, None) or _StateTimes()
        delay = times.delay if times.delay is not None else self._delay or 0.0
        seconds = _sum_metrics(metrics)
        cpu = seconds.get(("thread-cpu", "seconds"))
        if metrics and cpu is None:  # a coroutine: many at a time share the loop's thread
            thread = None
        self._compute.append(
            (
                start - delay,
                stop - start,
                key,
                prefix or key_split(key),
                -1 if run_id is None else run_id,
                state,
                size,
                self._text(kind, type_name) if state == "memory" else None,
                None if dtype is None else self._text(dtype, str),
                shape,
                dependencies,
                input_size,
                thread,
                cpu,
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

    def _text(self, described: Any, name: Callable[[Any], str]) -> str:
        """Name a type or dtype, remembered."""
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
