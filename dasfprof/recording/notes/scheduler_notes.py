"""The notes of the scheduler's hooks, and their conversion into rows in the writer's thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from dasfprof.database.block_codec import Columns
from dasfprof.database.numbers import number_array
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.notes.layout import Fields, FlatNotes, NoteKind, NoteLayout
from dasfprof.schema.tasks import (
    CLUSTER_CHANGE,
    GRAPH,
    RESULT_RELEASED,
    STEAL,
    TASK_RUN,
    WORKER_ADDED,
    WORKER_EXIT,
    WORKER_REMOVED,
)

#: A task run that ended. `SchedulerTaskPlugin._task_run` writes this note as a tuple, because a
#: call with so many arguments would double the cost; a test compares the names.
RUN = NoteKind(
    TASK_RUN,
    (
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
    ),
)
ARRIVED, STOLEN = NoteKind(GRAPH), NoteKind(STEAL)
ADDED, REMOVED, EXITED = map(NoteKind, (WORKER_ADDED, WORKER_REMOVED, WORKER_EXIT))
CHANGED = NoteKind(CLUSTER_CHANGE)

SCHEDULER_NOTES = NoteLayout(RUN, ARRIVED, STOLEN, ADDED, REMOVED, EXITED, CHANGED)

#: One object for all rows: the encoder compares by identity first.
_NO_ANNOTATIONS: dict[str, Any] = {}


def scheduler_notes(guard: HookGuard) -> FlatNotes:
    """Return the converter of a scheduler's notes."""
    return FlatNotes(SCHEDULER_NOTES, guard, {RUN: _task_run_columns})


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
        "annotations": [told or _NO_ANNOTATIONS for told in annotations]
        if any(annotations)
        else [_NO_ANNOTATIONS] * len(annotations),
    }


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
