"""Makes rows of what the scheduler's hooks noted, off its event loop."""

from __future__ import annotations

from typing import Any

from dasfprof.recording.flat_notes import FlatNotes
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.tasks import GRAPH, STEAL, TASK_RUN, WORKER_ADDED, WORKER_REMOVED

#: Items of a note. Those of a task run, behind the first, are the arguments of `_task_run_columns`.
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
            TASK_RUN.name: (TASK_RUN, _task_run_columns),
            **{schema.name: (schema, None) for schema in plain},
        },
    )


def _task_run_columns(  # noqa: PLR0917
    keys: list[Any],
    sent: list[Any],
    ended: list[Any],
    causes: list[Any],
    run_ids: list[Any],
    workers: list[Any],
    priorities: list[Any],
    annotations: list[Any],
    states: list[Any],
    waiting: list[Any],
    graphs: list[Any],
    queued: list[Any],
    stolen: list[Any],
    starts: list[Any],
    stops: list[Any],
    sizes: list[Any],
    wanted: list[Any],
    stimuli: list[Any],
    exceptions: list[Any],
) -> list[list[Any]]:
    return [
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
        *([priority[part] for priority in priorities] for part in range(3)),
        [told or _NO_ANNOTATIONS for told in annotations],
        exceptions,
    ]
