"""Makes rows of what the scheduler's hooks noted, off its event loop."""

from __future__ import annotations

from typing import Any

from dasfprof.database.writer import Folded
from dasfprof.recording.facts import GRAPH, STEAL, TASK_RUN, WORKER_ADDED, WORKER_REMOVED

_SCHEMAS = (TASK_RUN, GRAPH, STEAL, WORKER_ADDED, WORKER_REMOVED)

#: One object for all: the encoder knows it again.
_NO_ANNOTATIONS: dict[str, Any] = {}


def fold_notes(notes: list[tuple[Any, ...]]) -> Folded:
    """Make rows of notes, each a schema's name and then its facts, sorted by their schemas."""
    for schema in _SCHEMAS:
        positions = [i for i, note in enumerate(notes) if note[0] is schema.name]
        if schema is TASK_RUN:
            yield schema, [task_run_row(*notes[i][1:]) for i in positions], positions
        else:
            yield schema, [notes[i][1:] for i in positions], positions


def task_run_row(  # noqa: PLR0917
    sent: tuple[Any, ...],
    now: float,
    finish: str,
    waiting: tuple[float, str] | None,
    queued: float | None,
    stolen: float | None,
    start: float | None = None,
    stop: float | None = None,
    size: int | None = None,
    wanted: bool = False,
    stimulus: str = "",
    exception: str | None = None,
) -> tuple[Any, ...]:
    """Make the row of a task run."""
    key, since, cause, run_id, worker, priority, annotations = sent
    known, graph = waiting or (None, "")  # None: recording began later
    return (
        since,
        max(0.0, now - since),  # the clock may have been set back
        key,
        run_id,
        worker,
        finish,
        known,
        queued,
        stolen,
        start,
        stop,
        size or 0,
        wanted,
        cause,
        stimulus,
        graph,
        *priority,
        annotations or _NO_ANNOTATIONS,
        exception,
    )
