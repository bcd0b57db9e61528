"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.clock_correction import uncorrected
from dasfprof.recording.facts import CLOCK, COMPUTE, TRANSFER
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.run_queue import run_queue_seconds

#: First items of the notes: a task run that ended, a transfer, a change of the clock's correction.
FINISHED, FETCHED, CORRECTED = "finished", "fetched", "corrected"

#: Texts of dtypes kept at a time.
_MAX_TEXTS = 10_000


class TaskFolder:
    """Folds the notes of one worker, slice by slice, in the order in which they were made.

    Parameters
    ----------
    guard
        Takes the errors that a note causes; the other notes are folded all the same.
    corrections
        Dask's corrections of the worker's clock, seconds, numbered; the worker's hooks fill it.
    """

    def __init__(self, guard: HookGuard, corrections: dict[int, float]) -> None:
        self._guard = guard
        self._corrections = corrections
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
        prefix: str | None,
        run_id: int | None,
        state: str,
        size: int,
        kind: str | None,
        dtype: Any,
        shape: Any,
        dependencies: tuple[Any, ...],
        input_size: int,
        start: float | None,
        stop: float | None,
        received: float | None,
        ready: float | None,
        executing: float | None,
        correction: int,
        seceded: float | None,
        done: float,
        thread: int | None,
        waited_before: bytes | None,
        waited_after: bytes | None,
        corrected_by: float | None,
        exception: str | None,
        *metrics: Any,
    ) -> None:
        if start is None or stop is None:
            # Dask does not say: it was rescheduled, or failed before its function
            begin, duration = executing or done, done - (executing or done)
        else:
            duration = stop - start
            if corrected_by is None:
                begin = uncorrected(start, duration, executing, done, self._since(correction))
            else:
                begin = start - corrected_by
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
                kind,
                self._dtype_text(dtype),
                shape,
                dependencies,
                input_size,
                thread,
                cpu,
                run_queue_seconds(waited_before, waited_after),
                received,
                ready,
                executing,
                seceded,
                done,
                seconds.get(("deserialize", "seconds"), 0.0),
                seconds.get(("disk-read", "seconds"), 0.0),
                int(seconds.get(("disk-read", "bytes"), 0)),
                seconds.get(("executor", "seconds"), 0.0),
                exception,
            )
        )

    def _since(self, number: int) -> list[float]:
        """Give the corrections from this one on, as far as they are kept."""
        kept = self._corrections.copy()  # a hook may add one meanwhile
        return [seconds for at, seconds in kept.items() if at >= number]

    def _fetch(  # noqa: PLR0917
        self,
        start: float,
        duration: float,
        source: str,
        keys: tuple[Any, ...],
        size: int,
        state: str,
        *metrics: Any,
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

    def _dtype_text(self, dtype: Any) -> str | None:
        """Name a dtype. Those of pandas may hold data (categories), so they are not kept."""
        if dtype is None or not isinstance(dtype, np.dtype):
            return None if dtype is None else str(dtype)
        text = self._texts.get(dtype)
        if text is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            text = self._texts[dtype] = str(dtype)
        return text


def _sum_metrics(metrics: Sequence[Any]) -> dict[tuple[str, str], float]:
    """Sum a ledger's labels, values and units, one after the other, by label and unit."""
    sums: dict[tuple[str, str], float] = {}
    for label, value, unit in zip(metrics[::3], metrics[1::3], metrics[2::3], strict=True):
        sums[label, unit] = sums.get((label, unit), 0.0) + value
    return sums
