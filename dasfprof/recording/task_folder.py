"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.clock_correction import Correction
from dasfprof.recording.describe import type_name
from dasfprof.recording.facts import CLOCK, COMPUTE, TRANSFER
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.run_queue import Readings, run_queue_seconds

#: First items of the notes: a task run that ended, a transfer, a change of the clock's correction.
FINISHED, FETCHED, CORRECTED = "finished", "fetched", "corrected"

#: Texts of types and dtypes kept at a time; types made at run time must not pile up.
_MAX_TEXTS = 10_000


class TaskFolder:
    """Folds the notes of one worker, slice by slice, in the order in which they were made.

    Parameters
    ----------
    guard
        Takes the errors that a note causes; the other notes are folded all the same.
    """

    def __init__(self, guard: HookGuard) -> None:
        self._guard = guard
        self._texts: dict[Any, str] = {}
        self._compute: list[tuple[Any, ...]] = []
        self._transfers: list[tuple[Any, ...]] = []
        self._clocks: list[tuple[Any, ...]] = []

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
                self._finish(*note[1:])
            elif kind is FETCHED:
                self._fetch(*note[1:])
            else:
                self._clocks.append(note[1:])

    def _finish(  # noqa: PLR0917
        self,
        key: Any,
        facts: tuple[Any, ...],
        received: float | None,
        ready: float | None,
        executing: tuple[float, Correction] | None,
        seceded: float | None,
        done: float,
        correction: Correction,
        thread: int | None,
        readings: Readings | None,
        metrics: Sequence[Any],
        exception: str | None,
    ) -> None:
        prefix, run_id, state, size, kind, dtype, shape, dependencies, input_size = facts[:9]
        start, stop = facts[9:]
        given, correction = executing or (None, correction)
        if start is None:  # Dask does not say: it was rescheduled, or failed before its function
            begin, duration = given or done, done - (given or done)
        else:
            duration = stop - start
            told = readings[2] if readings else None
            if told is None:
                begin = correction.uncorrected(start, duration, given, done)
            else:
                begin = start - told
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
                received,
                ready,
                given,
                seceded,
                done,
                seconds.get(("deserialize", "seconds"), 0.0),
                seconds.get(("disk-read", "seconds"), 0.0),
                int(seconds.get(("disk-read", "bytes"), 0)),
                seconds.get(("executor", "seconds"), 0.0),
                exception,
            )
        )

    def _fetch(  # noqa: PLR0917
        self,
        start: float,
        duration: float,
        source: str,
        keys: tuple[Any, ...],
        size: int,
        state: str,
        metrics: Sequence[Any],
    ) -> None:
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


def _sum_metrics(metrics: Sequence[Any]) -> dict[tuple[str, str], float]:
    """Sum a ledger's (label, value, unit) by label and unit."""
    sums: dict[tuple[str, str], float] = {}
    for label, value, unit in metrics:
        sums[label, unit] = sums.get((label, unit), 0.0) + value
    return sums
