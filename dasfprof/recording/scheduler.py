"""`SchedulerTaskPlugin`: records what the scheduler decided and saw.

Hooks run on the scheduler's event loop and only append tuples; `SchedulerFolder`, in the writer's
thread, makes one row of times a task run. The scheduler's file covers what workers cannot tell:
queueing, steals, failed attempts on workers that died, and workers that came and went.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dasfprof.database.writer import Source
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.scheduler_folder import (
    GRAPHED,
    JOINED,
    LEFT,
    MOVED,
    STOLEN,
    SchedulerFolder,
)
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.step_facts import ANNOTATION

#: What clients that want a task are told of.
_OUTCOMES = ("memory", "erred")


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
            folder = SchedulerFolder(self._guard)
            constants = {"process_id": socket.gethostname(), "thread_id": "scheduler"}
            self._source = Source(folder.fold, constants, folder.finish)
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
        """Note a task's change of state."""
        try:
            if finish == "processing":
                task = self._tasks[key]
                facts: Any = (
                    task.run_id,
                    task.processing_on.address,
                    task.priority,
                    task.annotations,
                )
            elif start == "memory" or (start == "released" and finish == "forgotten"):
                return  # what becomes of results is of no interest, and is much
            else:
                if finish in _OUTCOMES and start == "processing":
                    kwargs["wanted"] = bool(self._tasks[key].who_wants)
                facts = kwargs
            self._append((MOVED, key, start, finish, time(), stimulus_id, facts))
            if len(self._source.rows) >= self._threshold:
                self.database.writer.threshold_reached(self._source)
        except Exception:
            self._guard.caught("transition")

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
            self._append((GRAPHED, time(), client, len(tasks), len(keys), stimulus_id, step))
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
                self._append((STOLEN, time(), key, self._tasks[key].run_id, victim, thief))
        except Exception:
            self._guard.caught("log_event")

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Note that a worker joined."""
        try:
            state = scheduler.workers[worker]
            self._append(
                (JOINED, time(), worker, state.name, state.host, state.nthreads, state.memory_limit)
            )
        except Exception:
            self._guard.caught("add_worker")

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Note that a worker left, and why."""
        try:
            self._append((LEFT, time(), worker, stimulus_id))
        except Exception:
            self._guard.caught("remove_worker")


def _ignore(note: tuple[Any, ...]) -> None:
    """Take the place of the source's append while there is no file."""
