"""Makes rows of what the scheduler's hooks noted, off its event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dasfprof.database.batch import Schema
from dasfprof.database.writer import Folded
from dasfprof.recording.facts import GRAPH, STEAL, TASK_RUN, WORKER_ADDED, WORKER_REMOVED
from dasfprof.recording.guard import HookGuard

#: First items of the notes: a transition, a graph, a steal, a worker that joined, one that left.
MOVED, GRAPHED, STOLEN, JOINED, LEFT = "moved", "graphed", "stolen", "joined", "left"

_SCHEMAS = (TASK_RUN, GRAPH, STEAL, WORKER_ADDED, WORKER_REMOVED)

#: One object for all: the encoder knows it again.
_NO_ANNOTATIONS: dict[str, Any] = {}


class _LiveTask:
    """A task on its way: when it came to each state, and where it was sent."""

    __slots__ = (
        "annotations",
        "cause",
        "graph",
        "priority",
        "queued",
        "run_id",
        "sent",
        "stolen",
        "waiting",
        "worker",
    )

    def __init__(self) -> None:
        self.waiting: float | None = None
        self.queued: float | None = None
        self.sent: float | None = None
        self.stolen: float | None = None
        self.run_id: int = -1
        self.worker: str | None = None
        self.cause: str = ""
        self.graph: str = ""
        self.priority: tuple[Any, ...] = (0, 0, 0)
        self.annotations: dict[str, Any] = {}


class SchedulerFolder:
    """Folds the notes of the scheduler, slice by slice, in the order in which they were made.

    Parameters
    ----------
    guard
        Takes the errors that a note causes; the other notes are folded all the same.
    """

    def __init__(self, guard: HookGuard) -> None:
        self._guard = guard
        self._live: dict[Any, _LiveTask] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {}

    def fold(self, notes: list[tuple[Any, ...]]) -> Folded:
        """Give the rows that these notes complete."""
        self._rows = {schema.name: [] for schema in _SCHEMAS}
        self._guard.each(notes, self._fold_notes)
        return self._folded()

    def finish(self) -> Folded:
        """Give the task runs that are on a worker when the file is closed."""
        self._rows = {schema.name: [] for schema in _SCHEMAS}
        for key, task in self._live.items():
            if task.sent is not None:
                self._end(key, task, "processing", task.sent, "", {})
        return self._folded()

    def _fold_notes(self, notes: Iterator[tuple[Any, ...]]) -> None:
        for note in notes:
            kind = note[0]
            if kind is MOVED:
                self._move(note)
            elif kind is STOLEN:
                self._steal(note)
            elif kind is GRAPHED:
                self._rows[GRAPH.name].append(note[1:])
            elif kind is JOINED:
                _, now, address, name, host, nthreads, memory_limit = note
                row = (now, address, name, host, nthreads, memory_limit or 0)
                self._rows[WORKER_ADDED.name].append(row)
            else:
                _, now, address, stimulus = note
                # The id is a word for the reason and a time.
                reason = stimulus.rpartition("-")[0]
                self._rows[WORKER_REMOVED.name].append((now, address, reason))

    def _folded(self) -> Folded:
        folded: list[tuple[Schema, list[tuple[Any, ...]], range]] = []
        first = 0
        for schema in _SCHEMAS:
            rows = self._rows[schema.name]
            folded.append((schema, rows, range(first, first + len(rows))))
            first += len(rows)
        return folded

    def _move(self, note: tuple[Any, ...]) -> None:
        _, key, start, finish, now, stimulus, facts = note
        if start == "processing":
            task = self._live.pop(key, None)  # None: it was sent before recording began
            if task is not None and task.sent is not None:
                self._end(key, task, finish, now, stimulus, facts)
            return
        task = self._live.get(key)
        if finish in ("memory", "erred", "released", "forgotten"):  # it never ran
            self._live.pop(key, None)
            return
        if task is None:
            task = self._live[key] = _LiveTask()
        if finish == "waiting":
            if task.waiting is None:
                task.waiting, task.graph = now, stimulus
        elif finish == "processing":
            task.sent, task.cause = now, stimulus
            task.run_id, task.worker, task.priority, task.annotations = facts
        else:  # queued, no-worker
            task.queued = now if task.queued is None else task.queued

    def _steal(self, note: tuple[Any, ...]) -> None:
        _, now, key, run_id, victim, thief = note
        self._rows[STEAL.name].append((now, key, run_id, victim, thief))
        task = self._live.get(key)
        if task is not None:
            task.stolen, task.run_id, task.worker = now, run_id, thief

    def _end(  # noqa: PLR0917
        self,
        key: Any,
        task: _LiveTask,
        state: str,
        now: float,
        stimulus: str,
        facts: dict[str, Any],
    ) -> None:
        assert task.sent is not None
        spans = facts.get("startstops") or ()
        # A worker may tell of earlier attempts as well: the last is this one.
        span: dict[str, Any] = next((s for s in reversed(spans) if s["action"] == "compute"), {})
        user, generation, order = (*(task.priority or ()), 0, 0, 0)[:3]
        self._rows[TASK_RUN.name].append(
            (
                task.sent,
                max(0.0, now - task.sent),  # the clock may have been set back
                key,
                task.run_id,
                task.worker,
                state,
                task.waiting,
                task.queued,
                task.stolen,
                span.get("start"),
                span.get("stop"),
                facts.get("nbytes") or 0,
                int(facts.get("wanted", False)),
                task.cause,
                stimulus,
                task.graph,
                float(user),
                int(generation),
                int(order),
                task.annotations or _NO_ANNOTATIONS,
                facts.get("exception_text"),
            )
        )
