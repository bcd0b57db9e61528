"""`SchedulerTaskPlugin`: records what the scheduler decided and saw.

Hooks run on the scheduler's event loop. They keep the times of tasks that are on their way and
append one row for each task run that ends, made of plain values alone: notes that are kept for
later make the garbage collector run more often, and each of its full runs stops the scheduler.
The scheduler's file covers what workers cannot tell: queueing, steals, failed attempts on workers
that died, and workers that came and went.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dasfprof.database.writer import Folded, Source
from dasfprof.recording.facts import (
    GRAPH,
    STEAL,
    TASK_RUN,
    UNSENT_TASKS,
    WORKER_ADDED,
    WORKER_REMOVED,
)
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.scheduler_folder import fold_notes, task_run_row
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.step_facts import ANNOTATION

#: What clients that want a task are told of.
_OUTCOMES = ("memory", "erred")

_HELD_BACK = ("queued", "no-worker")
_UNSENT = ("waiting", *_HELD_BACK)


class SchedulerTaskPlugin(SchedulerPlugin):
    """Records task runs, graphs, steals and workers as the scheduler sees them.

    Parameters
    ----------
    settings
        The run that it records for.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.name = settings.plugin_name("SchedulerPlugin")
        self._guard = HookGuard()
        #: What `stop` has to do.
        self._undo: list[Callable[[], object]] = []
        self._append: Callable[[tuple[Any, ...]], None] = _ignore
        #: By key, of tasks on their way: when and by which stimulus each became known, when it was
        #: held back and when stolen, and of those on a worker (key, time sent, stimulus, run_id,
        #: worker, priority, annotations).
        self._waiting: dict[Any, tuple[float, str]] = {}
        self._queued: dict[Any, float] = {}
        self._stolen: dict[Any, float] = {}
        self._sent: dict[Any, tuple[Any, ...]] = {}

    async def start(self, scheduler: Any) -> None:
        """Open the file and note the workers that are there."""
        try:
            self._scheduler = scheduler
            self._tasks = scheduler.tasks
            header = {"scheduler": {"id": scheduler.id, "address": scheduler.address}}
            self.database = self.settings.open_database("SchedulerPlugin", "scheduler", header)
            self._undo.append(self.database.close)
            writer = self.database.writer
            self._guard = HookGuard(writer)
            constants = {"process_id": socket.gethostname(), "thread_id": "scheduler"}
            self._source = Source(fold_notes, constants, self._unfinished)
            self._threshold = writer.commit_threshold
            writer.start(self._source)
            self._append = self._source.rows.append
            for address in list(scheduler.workers):
                self.add_worker(scheduler, address)
        except Exception:
            self._append = _ignore
            self._guard.caught("start")
            self._guard.take_all("start", self._undo)

    async def close(self) -> None:
        """Write what is pending when the scheduler closes.

        A standalone scheduler hears of its workers' end only after this: the file is closed for
        good by `stop`, or when the process exits.
        """
        try:
            last = not self._scheduler.workers
            database = self.database
            await asyncio.to_thread(database.close if last else database.commit)
        except Exception:
            self._guard.caught("close")

    async def stop(self) -> None:
        """End the recording: Dask calls nothing when a plugin is unregistered."""
        try:
            self._append = _ignore
            await asyncio.to_thread(self._guard.take_all, "stop", self._undo)
        except Exception:
            self._guard.caught("stop")

    def transition(
        self,
        key: Any,
        start: str,
        finish: str,
        *args: Any,
        stimulus_id: str = "",
        **kwargs: Any,
    ) -> None:
        """Keep when a task came to a state; a run that ends makes a note."""
        try:
            if start == "processing":
                sent = self._sent.pop(key, None)
                if sent is not None:  # else it was sent before recording began
                    self._ended(key, sent, finish, stimulus_id, kwargs)
            elif finish == "processing":
                task = self._tasks[key]
                worker = task.processing_on.address
                facts = (task.run_id, worker, task.priority, task.annotations)
                self._sent[key] = (key, time(), stimulus_id, *facts)
            elif finish == "waiting":
                if key not in self._waiting:
                    self._waiting[key] = time(), stimulus_id
            elif start == "memory":
                return  # what becomes of results is of no interest, and is much
            elif finish in _HELD_BACK:
                self._queued.setdefault(key, time())
            elif start != "released":  # it never ran
                self._waiting.pop(key, None)
                self._queued.pop(key, None)
        except Exception:
            self._guard.caught("transition")

    def _ended(
        self,
        key: Any,
        sent: tuple[Any, ...],
        finish: str,
        stimulus_id: str,
        facts: dict[str, Any],
    ) -> None:
        """Note a task run, and forget what was kept of it."""
        now, start, stop = time(), None, None
        spans = facts.get("startstops")
        if spans:
            # A worker may tell of earlier attempts as well: the last is this one.
            span = spans[-1]
            if span["action"] != "compute":
                span = next((s for s in reversed(spans) if s["action"] == "compute"), {})
            start, stop = span.get("start"), span.get("stop")
        self._append(
            (
                TASK_RUN.name,
                sent,
                now,
                finish,
                self._waiting.pop(key, None),
                self._queued.pop(key, None) if self._queued else None,
                self._stolen.pop(key, None) if self._stolen else None,
                start,
                stop,
                facts.get("nbytes"),
                finish in _OUTCOMES and bool(self._tasks[key].who_wants),
                stimulus_id,
                facts.get("exception_text"),
            )
        )
        if len(self._source.rows) >= self._threshold:
            self.database.writer.threshold_reached(self._source)

    def _unfinished(self) -> Folded:
        """Give the tasks that are on a worker, or on none yet, when the file is closed."""
        rows = []
        for sent in list(self._sent.values()):
            key, since = sent[:2]
            states = (self._waiting.get(key), self._queued.get(key), self._stolen.get(key))
            rows.append(task_run_row(sent, since, "processing", *states))
        unsent = self._unsent()
        first = len(rows)
        return [
            (TASK_RUN, rows, range(first)),
            (UNSENT_TASKS, unsent, range(first, first + len(unsent))),
        ]

    def _unsent(self) -> list[tuple[Any, ...]]:
        """Sum up the tasks that wait for others, for room or for a worker that fits them."""
        found: dict[tuple[str, str], tuple[float, Any, int]] = {}
        for key, (since, _) in dict(self._waiting).items():
            task = self._tasks.get(key)
            if task is not None and task.state in _UNSENT:
                kind = task.prefix.name, task.state
                begin, first, count = found.get(kind, (since, task, 0))
                found[kind] = min(begin, since), first, count + 1
        return [
            (begin, name, state, count, first.key, _restrictions(first))
            for (name, state), (begin, first, count) in found.items()
        ]

    def update_graph(
        self,
        scheduler: Any,
        *,
        client: str = "",
        keys: Any = (),
        tasks: Any = (),
        annotations: Any = None,
        stimulus_id: str = "",
        **kwargs: Any,
    ) -> None:
        """Note that a graph arrived."""
        try:
            step = self._take_step(annotations)
            self._append((GRAPH.name, time(), client, len(tasks), len(keys), stimulus_id, step))
        except Exception:
            self._guard.caught("update_graph")

    def _take_step(self, annotations: Any) -> Any:
        """Take the mark of a step off the tasks of a graph: workers have no use for it."""
        marked = (annotations or {}).get(ANNOTATION)
        if not marked:
            return None
        for key in marked:
            task = self._tasks.get(key)
            if task is not None and task.annotations:
                task.annotations.pop(ANNOTATION, None)
        return next(iter(marked.values()))

    def log_event(self, topic: str, msg: Any) -> None:
        """Note a steal: it makes no transition, but gives the task a new run_id."""
        try:
            if topic == "stealing" and isinstance(msg, tuple) and msg[0] == "confirm":
                _, key, _, victim, thief, *_ = msg
                now, run_id = time(), self._tasks[key].run_id
                self._append((STEAL.name, now, key, run_id, victim, thief))
                sent = self._sent.get(key)
                if sent is not None:
                    self._stolen[key] = now
                    self._sent[key] = (*sent[:3], run_id, thief, *sent[5:])
        except Exception:
            self._guard.caught("log_event")

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Note that a worker joined."""
        try:
            state = scheduler.workers[worker]
            facts = (state.name, state.host, state.nthreads, state.memory_limit or 0)
            self._append((WORKER_ADDED.name, time(), worker, *facts))
        except Exception:
            self._guard.caught("add_worker")

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Note that a worker left, and why."""
        try:
            # The id is a word for the reason and a time.
            self._append((WORKER_REMOVED.name, time(), worker, stimulus_id.rpartition("-")[0]))
        except Exception:
            self._guard.caught("remove_worker")


def _restrictions(task: Any) -> dict[str, Any]:
    """Give what a task asks of a worker."""
    asked = {
        "workers": sorted(task.worker_restrictions or ()),
        "hosts": sorted(task.host_restrictions or ()),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {name: value for name, value in asked.items() if value}


def _ignore(note: tuple[Any, ...]) -> None:
    """Take the place of the source's append while there is no file."""
