"""The notes of task runs by workers and the scheduler, made rows of in the writer's thread."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from dask.utils import key_split

from dasfprof.database.block_codec import Columns
from dasfprof.database.values import number_array
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.task_runs.thread_time import correction_of, run_queue_seconds
from dasfprof.schema.events import Schema
from dasfprof.schema.tasks import COMPUTE, MARK, RESULT_RELEASED, TASK_RUN

#: The items of notes: a list for each field, by the field's name.
Fields = dict[str, list[Any]]


class FlatNotes:
    """Notes that lie flat in one list, an item for each field, and their conversion into rows.

    `Source.width` says why.

    Parameters
    ----------
    schema
        The schema of the rows.
    fields
        The names of a note's items, in order.
    make_columns
        Converts fields into the schema's columns, by their names.
    guard
        Handles the errors that a note causes; the other notes are still converted.
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
        """Return the rows of notes."""
        columns = self._columns(notes) if notes else []
        if columns:
            rows = Columns(columns)
            yield self._schema, rows, range(len(rows))

    def _columns(self, notes: list[Any]) -> list[Sequence[Any]]:
        """Convert notes into columns; leave out those that fail."""
        width = len(self._fields)
        try:
            fields = {name: notes[at::width] for at, name in enumerate(self._fields)}
            made = self._make_columns(fields)
            return [made[name] for name, _ in self._schema.fields + self._schema.args]
        except Exception:
            if len(notes) <= width:
                self._guard.caught("folding a note")
                return []
        half = len(notes) // width // 2 * width
        first, second = self._columns(notes[:half]), self._columns(notes[half:])
        if not (first and second):
            return first or second
        return [[*a, *b] for a, b in zip(first, second, strict=True)]


# --- Dask's correction of a worker's clock, and how to subtract it from a task's start again ------
#
# A worker shifts the start and stop of each task by its estimate of the scheduler's clock, Dask's
# ``scheduler_delay``, which each heartbeat may change.

#: Stands for the number of a correction where a task was running before recording began.
UNKNOWN = 0

#: Corrections that are kept: those of more than an hour.
_MOST_CORRECTIONS = 10_000


class ClockCorrections:
    """Dask's corrections of one worker's clock, numbered from 1.

    Changed on the worker's event loop alone.
    """

    def __init__(self) -> None:
        #: The correction in force, seconds, and its number.
        self.current, self.number = 0.0, UNKNOWN
        #: The latest corrections by number, seconds.
        self.by_number: dict[int, float] = {}
        #: The latest corrections, seconds. One may come and go while no task begins or ends, so
        #: that only the thread that was given it has seen it: the worker's hooks add that one.
        self.known: set[float] = set()
        #: Numbers of earlier corrections, by key of the running task that was given a thread then.
        self.of_earlier: dict[Any, int] = {}

    def change(self, correction: float, running: Iterable[Any]) -> None:
        """Set the correction in force; `running` holds the keys of the running tasks."""
        for key in running:
            self.of_earlier.setdefault(key, self.number)
        self.current = correction
        self.number += 1
        if len(self.known) >= _MOST_CORRECTIONS:
            self.known.clear()
        self.known.add(correction)
        self.by_number[self.number] = correction
        self.by_number.pop(self.number - _MOST_CORRECTIONS, None)


def uncorrected(
    start: float,
    duration: float,
    executing: float | None,
    done: float,
    corrections: Sequence[float],
) -> float:
    """Return a task's start in the worker's own time, where the correction is not recorded.

    Dask reads its correction a little after the task got a thread, and a heartbeat may have changed
    it in between: the first correction is used that fits the other times.

    Parameters
    ----------
    start
        The start by Dask, seconds.
    duration
        The task's duration, seconds.
    executing, done
        When the task got a thread and when the worker knew that it had ended, in the worker's own
        time.
    corrections
        The correction in force when the task got a thread and all later ones, seconds.
    """
    earliest, latest = executing or 0.0, done - duration
    for correction in corrections:
        if earliest <= start - correction <= latest:
            return start - correction
    # The clock was set, or the correction in force is unknown.
    return max(earliest, min(start - corrections[-1], latest))


# --- The notes of the worker's hooks, and their conversion into rows in the writer's thread -------

#: What Dask knows of a task run that ended, in the order of a note.
FACTS = (
    "key",
    "prefix",  # None: unknown
    "run_id",
    "state",
    "size",
    "type",
    "dtype",  # the object
    "shape",
    "dependencies",
    "input_size",
    "start",  # by Dask; None if Dask has none
    "stop",
    "exception",
    "raised_at",
)
#: A note: these facts, and what `WorkerTaskPlugin._note_run` adds to them.
RUN = (
    *FACTS,
    "received",
    "ready",
    "executing",
    "correction",  # number of the one in force when the task got a thread
    "seceded",
    "done",
    "thread",
    "reading",  # see `run_queue.Reading`
    "cpu",
    "deserialize",
    "disk_read",
    "disk_read_size",
    "executor",
    "collecting",
    "storage",
)

#: The most dtypes whose text is cached.
_MAX_TEXTS = 10_000


class TaskNotes(FlatNotes):
    """Converts the notes of one worker into rows, slice by slice, in order.

    Parameters
    ----------
    guard
        Handles the errors that a note causes; the other notes are still converted.
    corrections
        Dask's corrections of the worker's clock by number, seconds; the worker's hooks add them.
    """

    def __init__(self, guard: HookGuard, corrections: dict[int, float]) -> None:
        self._corrections = corrections
        self._texts: dict[Any, str] = {}
        super().__init__(COMPUTE, RUN, self._run_columns, guard)

    def _run_columns(self, runs: Fields) -> dict[str, Any]:
        starts, stops, done = runs["start"], runs["stop"], runs["done"]
        executing, readings, cpu = runs["executing"], runs["reading"], runs["cpu"]
        threads, collecting = runs["thread"], runs["collecting"]
        are_brief = set(map(type, readings)) == {float}
        corrections = readings if are_brief else list(map(correction_of, readings))
        try:
            begins: Any = number_array(starts, "<f8")
            # The clock may have been set back.
            durations: Any = np.maximum(number_array(stops, "<f8") - begins, 0.0)
            begins = begins - number_array(corrections, "<f8")
        except struct.error:  # None is among them
            known = zip(starts, stops, executing, done, strict=True)
            durations = [_duration(*times) for times in known]
            facts = (starts, stops, executing, done, runs["correction"], corrections)
            begins = list(map(self._begin, *facts))
        return {
            **runs,
            "timestamp": begins,
            "duration": durations,
            "name": self._names(runs),
            "run_id": _or_minus_one(runs["run_id"]),
            "dtype": self._dtype_texts(runs["dtype"]),
            "run_queue": np.zeros(len(readings))
            if are_brief
            else _run_queue(readings, durations, cpu),
            "collecting": _of_threads(collecting, threads) if None in threads else collecting,
        }

    def _names(self, runs: Fields) -> list[str]:
        prefixes = runs["prefix"]
        if all(prefixes):
            return prefixes
        return [prefix or key_split(k) for prefix, k in zip(prefixes, runs["key"], strict=True)]

    def _begin(  # noqa: PLR0917
        self,
        start: float | None,
        stop: float | None,
        executing: float | None,
        done: float,
        correction: int,
        corrected_by: float | None,
    ) -> float:
        """Return a run's start on the worker's own clock."""
        if start is None or stop is None:  # see `_duration`
            return executing or done
        if corrected_by is not None:
            return start - corrected_by
        return uncorrected(start, stop - start, executing, done, self._since(correction))

    def _since(self, number: int) -> list[float]:
        """Return the corrections from this number on, as far as they are kept."""
        kept = self._corrections.copy()  # a hook may add one meanwhile
        return [seconds for at, seconds in kept.items() if at >= number]

    def _dtype_texts(self, dtypes: list[Any]) -> list[str | None]:
        if set(map(type, dtypes)) == {type(None)}:  # `np.dtype(float) == None` is true
            return dtypes
        return [dtype if dtype is None else self._dtype_text(dtype) for dtype in dtypes]

    def _dtype_text(self, dtype: Any) -> str:
        """Return the text of a dtype. Those of pandas may hold data, so they are not cached."""
        if not isinstance(dtype, np.dtype):
            return str(dtype)
        text = self._texts.get(dtype)
        if text is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            text = self._texts[dtype] = str(dtype)
        return text


def _run_queue(readings: list[Any], durations: Any, cpu: list[Any]) -> Any:
    return [
        run_queue_seconds(reading, duration, seconds) if reading is not None else None
        for reading, duration, seconds in zip(readings, durations, cpu, strict=True)
    ]


def _of_threads(values: list[Any], threads: list[str | None]) -> list[Any]:
    """Return values, None of coroutines: they have no thread of their own."""
    pairs = zip(values, threads, strict=True)
    return [None if thread is None else value for value, thread in pairs]


def _or_minus_one(run_ids: list[Any]) -> Any:
    try:
        return number_array(run_ids, "<i8")
    except struct.error:
        return [-1 if run_id is None else run_id for run_id in run_ids]


def _duration(
    start: float | None, stop: float | None, executing: float | None, done: float
) -> float:
    """Return a run's seconds. For runs that were rescheduled, or failed before their function was
    called, Dask has no times: they count from when they got a thread.
    """
    if start is None or stop is None:
        start, stop = executing or done, done
    return max(0.0, stop - start)  # the clock may have been set back


# --- The notes of the scheduler's hooks -----------------------------------------------------------

#: A task run that ended, which `SchedulerTaskPlugin._task_run` writes as a tuple.
SENT_RUN = (
    "key",
    "timestamp",
    "now",  # when it ended
    "cause",
    "run_id",
    "worker",
    "priority",  # a tuple of three
    "annotations",
    "state",
    "waiting",
    "graph",
    "queued",
    "stolen",
    "start",
    "stop",
    "size",  # None: no result
    "wanted",
    "end_cause",
    "exception",
)

#: One object for all rows: the encoder compares by identity first.
_NO_ANNOTATIONS: dict[str, Any] = {}


def scheduler_notes(guard: HookGuard) -> FlatNotes:
    """Return the converter of a scheduler's notes."""
    return FlatNotes(TASK_RUN, SENT_RUN, _task_run_columns, guard)


def _task_run_columns(runs: Fields) -> dict[str, Any]:
    begins, ends = number_array(runs["timestamp"], "<f8"), number_array(runs["now"], "<f8")
    user, generation, order = zip(*runs["priority"], strict=True)
    sizes, annotations = runs["size"], runs["annotations"]
    return {
        **runs,
        "timestamp": begins,
        "duration": np.maximum(ends - begins, 0.0),  # the clock may be set back
        "size": sizes if all(sizes) else [size or 0 for size in sizes],
        "priority_user": user,
        "priority_generation": generation,
        "priority_order": order,
        "annotations": [_without_marks(told) for told in annotations]
        if any(annotations)
        else [_NO_ANNOTATIONS] * len(annotations),
    }


def _without_marks(annotations: dict[str, Any] | None) -> dict[str, Any]:
    """Return annotations but those by which recordings mark tasks for workers."""
    if annotations and any(name.startswith(MARK) for name in annotations):
        annotations = {key: annotations[key] for key in annotations if not key.startswith(MARK)}
    return annotations or _NO_ANNOTATIONS


# --- Results that were let go: as many as task runs, so that they have a source of their own ------

#: Items of such a note: Dask's number of the attempt, and when.
RELEASE_WIDTH = 2
#: Parts of a second to which their times are rounded: the exact ones would be half of the bytes.
_PARTS = 1024.0


def fold_releases(notes: list[Any]) -> Folded:
    """Return the rows of results that were let go; those that no task made are left out."""
    runs, times = notes[::RELEASE_WIDTH], notes[1::RELEASE_WIDTH]
    if None in runs:
        known = [(run, at) for run, at in zip(runs, times, strict=True) if run is not None]
        runs, times = map(list, zip(*known, strict=True)) if known else ([], [])
    rounded: Any = np.ceil(number_array(times, "<f8") * _PARTS) / _PARTS
    yield RESULT_RELEASED, Columns([rounded, runs]), range(len(runs))
