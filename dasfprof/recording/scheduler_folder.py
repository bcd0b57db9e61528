"""Makes rows of what the scheduler's hooks noted, off its event loop."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.facts import GRAPH, STEAL, TASK_RUN, WORKER_ADDED, WORKER_REMOVED
from dasfprof.recording.flat_notes import FlatNotes, Rows
from dasfprof.recording.guard import HookGuard

#: Items of a note. Those of a task run, in their order, are unpacked in `_task_run_rows`.
WIDTH = 20

#: One object for all: the encoder knows it again.
_NO_ANNOTATIONS: dict[str, Any] = {}


def scheduler_notes(guard: HookGuard) -> FlatNotes:
    """Make the folder of a scheduler's notes, each a schema's name and then its facts."""
    plain = (GRAPH, STEAL, WORKER_ADDED, WORKER_REMOVED)
    return FlatNotes(
        WIDTH,
        guard,
        {
            TASK_RUN.name: (TASK_RUN, _task_run_rows),
            **{schema.name: (schema, None) for schema in plain},
        },
    )


def _task_run_rows(notes: list[Any]) -> Rows:
    (
        _,
        keys,
        sent,
        ended,
        causes,
        run_ids,
        workers,
        priorities,
        annotations,
        states,
        waiting,
        graphs,
        queued,
        stolen,
        starts,
        stops,
        sizes,
        wanted,
        stimuli,
        exceptions,
    ) = (notes[item::WIDTH] for item in range(WIDTH))
    return list(
        zip(
            sent,
            # The clock may have been set back.
            [max(0.0, end - begin) for begin, end in zip(sent, ended, strict=True)],
            keys,
            run_ids,
            workers,
            states,
            waiting,
            queued,
            stolen,
            starts,
            stops,
            [size or 0 for size in sizes],
            wanted,
            causes,
            stimuli,
            graphs,
            *zip(*priorities, strict=True),
            [told or _NO_ANNOTATIONS for told in annotations],
            exceptions,
            strict=True,
        )
    )
