"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.clock_correction import uncorrected
from dasfprof.recording.facts import CLOCK, COMPUTE, TRANSFER
from dasfprof.recording.flat_notes import FlatNotes, Rows
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.run_queue import run_queue_seconds

#: First items of the notes: a task run that ended, a transfer, a change of the clock's correction.
FINISHED, FETCHED, CORRECTED = "finished", "fetched", "corrected"

#: Items of a note. Those of a task run, in their order, are unpacked in `_run_rows`.
WIDTH = 29

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
        self._corrections = corrections
        self._texts: dict[Any, str] = {}
        self._notes = FlatNotes(
            WIDTH,
            guard,
            {
                FINISHED: (COMPUTE, self._run_rows),
                FETCHED: (TRANSFER, None),
                CORRECTED: (CLOCK, None),
            },
        )

    def fold(self, notes: list[Any]) -> Folded:
        """Give the rows of these notes, which lie one after the other in the list."""
        return self._notes.fold(notes)

    def _run_rows(self, notes: list[Any]) -> Rows:
        (
            _,
            keys,
            prefixes,
            run_ids,
            states,
            sizes,
            kinds,
            dtypes,
            shapes,
            inputs,
            input_sizes,
            starts,
            stops,
            exceptions,
            received,
            ready,
            executing,
            corrections,
            seceded,
            done,
            threads,
            waited_before,
            waited_after,
            corrected_by,
            cpu,
            deserialize,
            disk_read,
            disk_read_sizes,
            executor,
        ) = (notes[item::WIDTH] for item in range(WIDTH))
        spans = map(self._span, starts, stops, executing, done, corrections, corrected_by)
        begins, durations = zip(*spans, strict=True) if keys else ((), ())
        return list(
            zip(
                begins,
                durations,
                keys,
                [prefix or key_split(key) for prefix, key in zip(prefixes, keys, strict=True)],
                [-1 if run_id is None else run_id for run_id in run_ids],
                states,
                sizes,
                kinds,
                [dtype if dtype is None else self._dtype_text(dtype) for dtype in dtypes],
                shapes,
                inputs,
                input_sizes,
                threads,
                cpu,
                map(run_queue_seconds, waited_before, waited_after),
                received,
                ready,
                executing,
                seceded,
                done,
                deserialize,
                disk_read,
                disk_read_sizes,
                executor,
                exceptions,
                strict=True,
            )
        )

    def _span(  # noqa: PLR0917
        self,
        start: float | None,
        stop: float | None,
        executing: float | None,
        done: float,
        correction: int,
        corrected_by: float | None,
    ) -> tuple[float, float]:
        """Give a run's start on the worker's own clock, and its duration."""
        if start is None or stop is None:
            # Dask does not say: it was rescheduled, or failed before its function
            begin, duration = executing or done, done - (executing or done)
        else:
            duration = stop - start
            if corrected_by is None:
                begin = uncorrected(start, duration, executing, done, self._since(correction))
            else:
                begin = start - corrected_by
        return begin, max(0.0, duration)  # the clock may have been set back

    def _since(self, number: int) -> list[float]:
        """Give the corrections from this one on, as far as they are kept."""
        kept = self._corrections.copy()  # a hook may add one meanwhile
        return [seconds for at, seconds in kept.items() if at >= number]

    def _dtype_text(self, dtype: Any) -> str:
        """Name a dtype. Those of pandas may hold data (categories), so they are not kept."""
        if not isinstance(dtype, np.dtype):
            return str(dtype)
        text = self._texts.get(dtype)
        if text is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            text = self._texts[dtype] = str(dtype)
        return text
