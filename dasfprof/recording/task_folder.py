"""Makes rows of task runs and transfers from what the worker's hooks noted, off its event loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.writer import Folded
from dasfprof.recording.clock_correction import uncorrected
from dasfprof.recording.flat_notes import FlatNotes
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.run_queue import run_queue_seconds
from dasfprof.schema.tasks import CLOCK, COMPUTE, TRANSFER

#: First items of the notes: a task run that ended, a transfer, a change of the clock's correction.
FINISHED, FETCHED, CORRECTED = "finished", "fetched", "corrected"

#: Items of a note. Those of a task run, behind the first, are the arguments of `_run_columns`.
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
                FINISHED: (COMPUTE, self._run_columns),
                FETCHED: (TRANSFER, None),
                CORRECTED: (CLOCK, None),
            },
        )

    def fold(self, notes: list[Any]) -> Folded:
        """Give the rows of these notes, which lie one after the other in the list."""
        return self._notes.fold(notes)

    def _run_columns(  # noqa: PLR0917
        self,
        keys: list[Any],
        prefixes: list[Any],
        run_ids: list[Any],
        states: list[Any],
        sizes: list[Any],
        kinds: list[Any],
        dtypes: list[Any],
        shapes: list[Any],
        inputs: list[Any],
        input_sizes: list[Any],
        starts: list[Any],
        stops: list[Any],
        exceptions: list[Any],
        received: list[Any],
        ready: list[Any],
        executing: list[Any],
        corrections: list[Any],
        seceded: list[Any],
        done: list[Any],
        threads: list[Any],
        waited_before: list[Any],
        waited_after: list[Any],
        corrected_by: list[Any],
        cpu: list[Any],
        deserialize: list[Any],
        disk_read: list[Any],
        disk_read_sizes: list[Any],
        executor: list[Any],
    ) -> list[list[Any]]:
        begins = map(self._begin, starts, stops, executing, done, corrections, corrected_by)
        return [
            list(begins),
            list(map(_duration, starts, stops, executing, done)),
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
            list(map(run_queue_seconds, waited_before, waited_after)),
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
        ]

    def _begin(  # noqa: PLR0917
        self,
        start: float | None,
        stop: float | None,
        executing: float | None,
        done: float,
        correction: int,
        corrected_by: float | None,
    ) -> float:
        """Give a run's start on the worker's own clock."""
        if start is None or stop is None:  # see `_duration`
            return executing or done
        if corrected_by is not None:
            return start - corrected_by
        return uncorrected(start, stop - start, executing, done, self._since(correction))

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


def _duration(
    start: float | None, stop: float | None, executing: float | None, done: float
) -> float:
    """Give a run's seconds. Of those rescheduled, or failed before their function, Dask tells no
    times: they count from when they were given a thread.
    """
    if start is None or stop is None:
        start, stop = executing or done, done
    return max(0.0, stop - start)  # the clock may have been set back
