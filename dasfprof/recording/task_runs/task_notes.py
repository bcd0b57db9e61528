"""Converters of notes into rows. Hooks of the plugins make a note of each task run.

The writer's thread calls the converters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.blocks import Columns
from dasfprof.database.values import number_array
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.thread_time import correction_of, run_queue_seconds
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import COMPUTE, MARK, RESULT_RELEASED, TASK_RUN

#: By name of a field: the items of all notes for this field.
Fields = dict[str, list[Any]]


class FlatNotes:
    """Converts notes into rows.

    Notes are stored flat: one list has an item per field of each note (see `Source.width`).

    Parameters
    ----------
    schema
        The schema of the rows.
    fields
        The names of a note's fields, in the order of its items.
    make_columns
        A function that receives the items of the notes by field. It returns the columns of the
        rows by name.
    guard
        Handles the error if a note cannot be converted. The other notes are still converted.
    """

    def __init__(
        self,
        schema: Schema,
        fields: tuple[str, ...],
        make_columns: Callable[[Fields], dict[str, Sequence[Any]]],
        guard: HookGuard,
    ) -> None:
        self._schema, self._fields = schema, fields
        self._make_columns, self._guard = make_columns, guard

    def fold(self, notes: list[Any]) -> Folded:
        """Return the rows into which notes are converted."""
        columns = self._columns(notes) if notes else []
        if columns:
            rows = Columns(columns)
            yield self._schema, rows, range(len(rows))

    def _columns(self, notes: list[Any]) -> list[Sequence[Any]]:
        """Return the columns into which notes are converted, in the schema's order.

        Notes that cannot be converted are left out. The list is empty if no notes remain.
        """
        width = len(self._fields)
        try:
            fields = {name: notes[at::width] for at, name in enumerate(self._fields)}
            columns = self._make_columns(fields)
            return [columns[name] for name, _ in self._schema.fields + self._schema.args]
        except Exception:
            if len(notes) <= width:
                self._guard.caught("folding a note")
                return []
        half = len(notes) // width // 2 * width
        first, second = self._columns(notes[:half]), self._columns(notes[half:])
        if not (first and second):
            return first or second
        return [[*a, *b] for a, b in zip(first, second, strict=True)]


#: Fields of a note with facts that Dask has about a task run that ended, in order.
FACTS = (
    "key",
    "prefix",  # None if the prefix is unknown.
    "run_id",
    "state",
    "size",
    "type",
    "dtype",  # The dtype object.
    "shape",
    "dependencies",
    "input_size",
    "start",  # Measured by Dask. None if Dask has not measured it.
    "stop",
    "exception",
    "raised_at",
)
#: Fields of a worker's note: `FACTS`, and the fields that `WorkerTaskPlugin._note_run` adds.
RUN = (
    *FACTS,
    "received",
    "ready",
    "executing",
    "correction",  # Dask's correction of the clock when the task got a thread (`worker_notes`).
    "seceded",
    "done",
    "thread",
    "reading",  # See `thread_time.Reading`.
    "cpu",
    "deserialize",
    "disk_read",
    "disk_read_size",
    "collecting",
    "storage",
)


def worker_notes(guard: HookGuard) -> FlatNotes:
    """Return the object that converts a worker's notes into rows.

    A worker adds a correction to the start and stop of each task: Dask's ``scheduler_delay``, which
    is an estimate of the difference from the scheduler's clock (seconds). Each heartbeat may change
    the correction. It is subtracted again.
    """
    return FlatNotes(COMPUTE, RUN, _run_columns, guard)


def _run_columns(runs: Fields) -> dict[str, Any]:
    starts, stops, readings = runs["start"], runs["stop"], runs["reading"]
    names, threads, collecting = runs["prefix"], runs["thread"], runs["collecting"]
    are_brief = set(map(type, readings)) == {float}
    corrections = readings if are_brief else list(map(correction_of, readings))
    try:
        begins: Any = number_array(starts, "<f8")
        # The clock may have been set back.
        durations: Any = np.maximum(number_array(stops, "<f8") - begins, 0.0)
        begins = begins - number_array(corrections, "<f8")
    except struct.error:  # Some times or corrections are None.
        facts = (runs["executing"], runs["done"], runs["correction"], corrections)
        begins, durations = zip(*map(_times, starts, stops, *facts), strict=True)
    if are_brief:
        run_queue: Any = np.zeros(len(readings))
    else:
        run_queue = list(map(run_queue_seconds, readings, durations, runs["cpu"]))
    if not all(names):
        names = [name or key_split(key) for name, key in zip(names, runs["key"], strict=True)]
    if None in threads:  # Coroutines have no thread, so their collections are unknown.
        pairs = zip(collecting, threads, strict=True)
        collecting = [None if thread is None else seconds for seconds, thread in pairs]
    return {
        **runs,
        "timestamp": begins,
        "duration": durations,
        "name": names,
        "run_id": _or_minus_one(runs["run_id"]),
        "dtype": _dtype_texts(runs["dtype"]),
        "run_queue": run_queue,
        "collecting": collecting,
    }


def _dtype_texts(dtypes: list[Any]) -> list[str | None]:
    if set(map(type, dtypes)) == {type(None)}:  # `np.dtype(float) == None` is true.
        return dtypes
    # Texts of pandas' dtypes are not cached, because they may contain data.
    return [
        None if dtype is None else _numpy_text(dtype) if isinstance(dtype, np.dtype) else str(dtype)
        for dtype in dtypes
    ]


@lru_cache(maxsize=10_000)
def _numpy_text(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def _times(  # noqa: PLR0917
    start: float | None,
    stop: float | None,
    executing: float | None,
    done: float,
    assumed: float,
    correction: float | None,
) -> tuple[float, float]:
    """Return the start of a task run on the worker's clock, and the duration of the task run.

    `correction` is the clock correction that Dask added to `start` and `stop`. It is None for
    coroutines. `assumed` is the correction when the task got a thread.
    """
    if start is None or stop is None:
        # Dask has no times of a task run that was rescheduled, or that failed before its function
        # was called.
        start = executing or done
        return start, max(0.0, done - start)
    duration = max(0.0, stop - start)  # The clock may have been set back.
    if correction is not None:
        return start - correction, duration
    # A heartbeat may have changed the correction before Dask read it. The start is therefore moved
    # such that the task run ends by `done`, but does not start before `executing`.
    return max(executing or 0.0, min(start - assumed, done - duration)), duration


def _or_minus_one(run_ids: list[Any]) -> Any:
    try:
        return number_array(run_ids, "<i8")
    except struct.error:
        return [-1 if run_id is None else run_id for run_id in run_ids]


#: Fields of a scheduler's note of a task run that ended. `SchedulerTaskPlugin._task_run` returns
#: the items in this order.
SENT_RUN = (
    "key",
    "timestamp",
    "now",  # The time at which the task run ended.
    "cause",
    "run_id",
    "worker",
    "priority",  # A tuple of three numbers.
    "annotations",
    "state",
    "waiting",
    "graph",
    "queued",
    "stolen",
    "start",
    "stop",
    "size",  # None if the task run has no result.
    "wanted",
    "end_cause",
    "exception",
)

#: All rows without annotations share this object, because the encoder first compares by identity.
_NO_ANNOTATIONS: dict[str, Any] = {}


def scheduler_notes(guard: HookGuard) -> FlatNotes:
    """Return the object that converts a scheduler's notes into rows."""
    return FlatNotes(TASK_RUN, SENT_RUN, _task_run_columns, guard)


def _task_run_columns(runs: Fields) -> dict[str, Any]:
    begins, ends = number_array(runs["timestamp"], "<f8"), number_array(runs["now"], "<f8")
    user, generation, order = zip(*runs["priority"], strict=True)
    sizes, annotations = runs["size"], runs["annotations"]
    return {
        **runs,
        "timestamp": begins,
        "duration": np.maximum(ends - begins, 0.0),  # The clock may have been set back.
        "size": sizes if all(sizes) else [size or 0 for size in sizes],
        "priority_user": user,
        "priority_generation": generation,
        "priority_order": order,
        "annotations": [_without_marks(each) for each in annotations]
        if any(annotations)
        else [_NO_ANNOTATIONS] * len(annotations),
    }


def _without_marks(annotations: dict[str, Any] | None) -> dict[str, Any]:
    """Return annotations without the marks by which workers recognize hidden tasks."""
    if annotations and any(name.startswith(MARK) for name in annotations):
        annotations = {key: annotations[key] for key in annotations if not key.startswith(MARK)}
    return annotations or _NO_ANNOTATIONS


#: Number of items of a note of a released result: the run id and the time.
RELEASE_WIDTH = 2
#: Times of releases are rounded to this fraction of a second. Exact times would take half of the
#: bytes.
_PARTS = 1024.0


def fold_releases(notes: list[Any]) -> Folded:
    """Return the rows of released results, without results that no task computed."""
    runs, times = notes[::RELEASE_WIDTH], notes[1::RELEASE_WIDTH]
    if None in runs:
        known = [(run, at) for run, at in zip(runs, times, strict=True) if run is not None]
        runs, times = map(list, zip(*known, strict=True)) if known else ([], [])
    rounded: Any = np.ceil(number_array(times, "<f8") * _PARTS) / _PARTS
    yield RESULT_RELEASED, Columns([rounded, runs]), range(len(runs))
