"""`SchedulerTaskPlugin`: records task runs, graphs, steals and workers on the scheduler.

Hooks run on the scheduler's event loop. They store the times of unfinished tasks. They append a
note when a task run ends and when a result is released. Notes contain facts that workers do not
know.

Notes are stored flat in lists (`Source.width`). The times of a task are stored in a tuple of plain
values. The garbage collector does not track these. Tracked objects would trigger full collections,
which stop the scheduler.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps

from dasfprof.database.writer import Folded, Source
from dasfprof.recording.cluster.calls import settle_worker
from dasfprof.recording.cluster.link import ask_workers
from dasfprof.recording.cluster.program import TOPIC
from dasfprof.recording.cluster.task_clients import TaskClients
from dasfprof.recording.cluster.worker_exits import Absence, ClusterChanges, WorkerExits
from dasfprof.recording.dashboard import add_page
from dasfprof.recording.dask_internals.undocumented import forget_handlers, use_dask_logging
from dasfprof.recording.guard import HookGuard, in_thread
from dasfprof.recording.rows import FileRows, SchemaRow, discard
from dasfprof.recording.settings import RunSettings, place_mark, recorded_settings, remove_mark
from dasfprof.recording.shipping.receiver import Receiver
from dasfprof.recording.shipping.sender import Sender
from dasfprof.recording.shipping.targets import upload_files
from dasfprof.recording.stack_samples.sampled_threads import EventLoop
from dasfprof.recording.stack_samples.sampler import sample_into
from dasfprof.recording.task_runs.hidden_tasks import hide_rows, hiding_runs
from dasfprof.recording.task_runs.outcomes import HELD_BACK, remove_step, unsent_tasks
from dasfprof.recording.task_runs.task_notes import (
    RELEASE_WIDTH,
    SENT_RUN,
    fold_releases,
    scheduler_notes,
)
from dasfprof.recording.telemetry import add_metrics
from dasfprof.recording.under_way.scheduler import Narrow, SchedulerUnderWay
from dasfprof.schema.events import Schema
from dasfprof.schema.profiles import LOOP_SAMPLE
from dasfprof.schema.tasks import (
    CLUSTER_CHANGE,
    GRAPH,
    STEAL,
    UNSENT_TASKS,
    WORKER_ADDED,
    WORKER_EXIT,
    WORKER_REMOVED,
)

#: States of ended tasks. The scheduler reports these states to clients that want the results.
_OUTCOMES = ("memory", "erred")

#: Start of the stimulus id with which Dask's `retire_workers` removes a worker.
_RETIRED = "retire-workers"

#: Starts of the stimulus ids with which Dask removes a worker that may have died: the worker's
#: connection was closed, or its nanny reported that the process ended.
_UNASKED = ("handle-worker-cleanup", "nanny-close")

#: Placeholder for the time and stimulus at which a task became known before recording started.
_UNKNOWN = (None, "")


class SchedulerTaskPlugin(SchedulerPlugin):
    """Records task runs, graphs, steals and workers on the scheduler.

    Parameters
    ----------
    companion
        The module that serves the run's page on the dashboard and analyses the run for its metrics,
        or None if there are neither.
    """

    def __init__(self, settings: RunSettings, companion: str | None = None) -> None:
        self.settings = settings
        self._companion = companion
        self.name = settings.plugin_name("SchedulerPlugin")
        self._guard = HookGuard()
        #: Functions that `stop` calls, from the last to the first.
        self._undo: list[Callable[[], object]] = []
        #: Waits until the scheduler has closed, and closes the file. Used if the scheduler closes
        #: before its workers.
        self._end: asyncio.Task[None] | None = None
        self._note: Callable[[tuple[Any, ...]], None] = discard
        self._released: Callable[[tuple[Any, ...]], None] = discard
        self._append: Callable[[SchemaRow], object] = discard
        self._under_way: SchedulerUnderWay | None = None
        self._exits: WorkerExits | None = None
        self._changes: ClusterChanges | None = None
        self.clients: TaskClients | None = None
        self.absence = Absence(settings)
        self._receiver: Receiver | None = None
        self.sender: Sender | None = None
        #: For unfinished tasks, by key: the time and the stimulus at which the task became known,
        #: the time at which it was queued, and the time at which it was stolen.
        self._waiting: dict[Any, tuple[float, str]] = {}
        self._queued: dict[Any, float] = {}
        self._stolen: dict[Any, float] = {}
        #: For tasks that were sent to a worker, by key: the time, the stimulus, and the address of
        #: the worker.
        self._sent: dict[Any, tuple[float, str, str]] = {}

    async def start(self, scheduler: Any) -> None:
        """Open the file and record the current workers."""
        try:
            use_dask_logging()
            self._scheduler = scheduler
            self._tasks = scheduler.tasks
            header = {"settings": recorded_settings(self.settings), "releases": True}
            header["scheduler"] = {"id": scheduler.id, "address": scheduler.address}
            self.database = self.settings.open_database("SchedulerPlugin", "scheduler", header)
            self._upload()
            self._undo.append(self.database.close)
            writer = self.database.writer
            self._guard = HookGuard(writer)
            self._receive(scheduler)
            constants = {"process_id": socket.gethostname(), "thread_id": "scheduler"}
            self._notes = scheduler_notes(self._guard)
            source = Source(self._notes.fold, constants, self._unfinished, len(SENT_RUN))
            self._note = writer.extender(source)
            rows = FileRows(writer, constants, self._guard)
            self._append = rows.append
            released = Source(fold_releases, constants, width=RELEASE_WIDTH)
            self._released = writer.extender(released)
            exited, changed = (partial(self._write, kind) for kind in (WORKER_EXIT, CLUSTER_CHANGE))
            self._exits = WorkerExits(scheduler.connection_args, exited, self._guard)
            self._changes = ClusterChanges(scheduler, changed, self._guard)
            self._undo += [self._exits.stop, self._changes.stop]
            narrowed = self._record_clients(scheduler, rows)
            for address in list(scheduler.workers):
                self.add_worker(scheduler, address)
            self._under_way = SchedulerUnderWay(scheduler, rows, narrowed)
            self._undo.append(self._under_way.stop)
            frequency, loop = self.settings.stack_frequency, partial(EventLoop, scheduler)
            self._undo.append(sample_into(rows, frequency, LOOP_SAMPLE, loop))
            self.absence.begin(scheduler, writer, self._guard)
            self._undo.append(self.absence.stop)
        except Exception:
            self._note_no_more()
            self._guard.caught("start")
            self._guard.call_all("start", self._undo)
            return
        with self._guard.catching("dashboard"):
            if self._companion is not None:
                run = scheduler, self.settings, self._companion
                self._undo.append(add_page(*run))
                self._undo.append(add_metrics(*run, self.database))

    def _record_clients(self, scheduler: Any, rows: FileRows) -> Narrow | None:
        """Start to record the clients of tasks and, if needed, to hide tasks of other users.

        Return a function that removes hidden tasks from snapshots, or None if the run hides no
        tasks.
        """
        self.clients = TaskClients(scheduler, self.settings, self._write)
        if not self.clients.hides:
            return None
        hide_rows(rows, self.clients)
        self._append = rows.append
        self._note = hiding_runs(self._note, self.clients, of_worker=False)
        return self.clients.narrowed

    def _write(self, kind: Schema, *facts: Any) -> None:
        self._append((kind, (time(), *facts)))

    def _note_no_more(self) -> None:
        self._note = self._released = self._append = discard

    def _upload(self) -> None:
        """Start uploading the file to the run's storage if the run has a storage."""
        self.sender = upload_files(
            self.settings,
            "the scheduler",
            [self.database],
            lambda: self._scheduler.status.name not in ("init", "running"),
        )
        if self.sender is not None:
            self._undo.append(self.sender.finish)

    def _receive(self, scheduler: Any) -> None:
        """Start receiving the files of workers, if the run ships files to the scheduler."""
        if self.settings.ship in ("auto", "scheduler"):
            # Workers that find no mark in the run's directory send their files.
            place_mark(self.settings.directory, self.settings.uuid)
            self._undo.append(partial(remove_mark, self.settings.directory, self.settings.uuid))
            self._receiver = Receiver(self.settings, scheduler)
            self._undo.append(self._receiver.stop)

    def commit(self) -> None:
        """Write, and if needed upload, everything that was recorded before the call."""
        # If `start` failed, there is no file.
        for part in (getattr(self, "database", None), self.sender):
            if part is not None:
                part.commit()

    async def before_close(self) -> None:
        """Record the tasks in progress, and receive the last files of workers.

        Dask calls this method when the scheduler starts to close.
        """
        with self._guard.catching("before_close"):
            self._end_under_way()
            if self._receiver is not None:
                await self._receiver.receive_last()

    def _end_under_way(self) -> None:
        if self._under_way is not None:
            self._under_way.close()

    async def close(self) -> None:
        """Write pending events, and close the file after the scheduler has closed."""
        with self._guard.catching("close"):
            await in_thread(self.database.commit)
            # A standalone scheduler learns that its workers have ended only after it calls this
            # method.
            if self._scheduler.workers:
                self._end = asyncio.create_task(self._close_with_scheduler())
            else:
                await self.stop()

    async def _close_with_scheduler(self) -> None:
        try:
            await self._scheduler.finished()
        finally:  # The event loop may end first and cancel this task.
            self._note_no_more()
            self._guard.call_all("close", self._undo)

    async def stop(self) -> None:
        """Stop recording. Dask calls no method when it unregisters a plugin."""
        with self._guard.catching("stop"):
            self._end_under_way()
            if self._scheduler.status.name == "running":
                await asyncio.gather(*(e.finish() for e in (self._receiver, self._exits) if e))
            self._note_no_more()
            if self.clients is not None:
                self.clients.stop()
            await in_thread(partial(self._guard.call_all, "stop", self._undo))
            forget_handlers()
            # These refer to this plugin. Without such cycles, an ended run is freed at once. The
            # garbage collector of a scheduler would free it much later.
            self._exits = self._changes = self._under_way = self.clients = None

    def add_client(self, scheduler: Any, client: str) -> None:
        """Record that a client connected. It may be the run's client, which connects again."""
        self.absence.came(client)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Record that a client left."""
        self.absence.left(client)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str = "", **kwargs: Any
    ) -> None:
        """Store the time of a task's transition, and append a note if it ends a task run."""
        try:
            if start == "processing":
                if key in self._sent:  # If not, the task was sent before recording started.
                    self._note(self._task_run(key, time(), finish, stimulus_id, kwargs))
            elif finish == "processing":
                address = self._tasks[key].processing_on.address
                self._sent[key] = time(), stimulus_id, address
            elif start == "memory":
                self._released((self._tasks[key].run_id, time()))
            elif finish == "waiting":
                if key not in self._waiting:
                    self._waiting[key] = time(), stimulus_id
            elif finish in HELD_BACK:
                self._queued.setdefault(key, time())
            elif start != "released":  # The task was never assigned to a worker.
                self._waiting.pop(key, None)
                self._queued.pop(key, None)
                if start != "erred" and self._changes is not None:
                    self._changes.never_sent(stimulus_id)
        except Exception:
            self._guard.caught("transition")

    def _task_run(
        self, key: Any, now: float, state: str, end_cause: str, facts: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Return the note of a task run that ends, and remove the stored times of its task.

        `facts` has the further arguments that Dask passes to `transition`.
        """
        start = stop = None
        spans = facts.get("startstops")
        if spans:
            # A worker may also report earlier attempts. The last attempt is this task run.
            span = spans[-1]
            if span["action"] != "compute":
                span = next((s for s in reversed(spans) if s["action"] == "compute"), {})
            start, stop = span.get("start"), span.get("stop")
        task = self._tasks[key]
        timestamp, cause, worker = self._sent.pop(key)
        waiting, graph = self._waiting.pop(key, _UNKNOWN)
        return (
            key,
            timestamp,
            now,
            cause,
            task.run_id,
            worker,
            task.priority,
            task.annotations,
            state,
            waiting,
            graph,
            self._queued.pop(key, None) if self._queued else None,
            self._stolen.pop(key, None) if self._stolen else None,
            start,
            stop,
            facts.get("nbytes"),
            state in _OUTCOMES and bool(task.who_wants),
            end_cause,
            facts.get("exception_text"),
        )

    def _unfinished(self) -> Folded:
        """Return the rows of unfinished tasks, when the file is closed."""
        notes: list[Any] = []
        append: Callable[[tuple[Any, ...]], None] = notes.extend
        waiting = self._waiting
        if self.clients is not None and self.clients.hides:
            append = hiding_runs(append, self.clients, of_worker=False)
            waiting = {key: waiting[key] for key in waiting if key not in self.clients}
        for key, (since, *_) in list(self._sent.items()):
            if key in self._tasks:
                append(self._task_run(key, since, "processing", "", {}))
        unsent = unsent_tasks(waiting, self._tasks)
        first = len(notes) // len(SENT_RUN)
        return [*self._notes.fold(notes), (UNSENT_TASKS, unsent, range(first, first + len(unsent)))]

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
        """Record that a graph was submitted."""
        try:
            step = remove_step(annotations, self._tasks)
            if self.clients is None or not self.clients.sent(client, keys, tasks):
                self._write(GRAPH, client, len(tasks), len(keys), stimulus_id, step)
        except Exception:
            self._guard.caught("update_graph")

    def log_event(self, topic: str, msg: Any) -> None:
        """Record steals, changes of the cluster and facts about clients that the scheduler logs."""
        with self._guard.catching("log_event"):
            if topic == "all" and self._under_way is not None:
                self._under_way.note(msg)
            if topic == "stealing" and isinstance(msg, tuple) and msg[0] == "confirm":
                _, key, _, victim, thief, *_ = msg
                # A steal gives the task a new run_id.
                self._write(STEAL, key, self._tasks[key].run_id, victim, thief)
                if key in self._sent:
                    self._stolen[key] = time()
                    self._sent[key] = *self._sent[key][:2], thief
            elif topic == TOPIC and self.clients is not None:
                self.clients.announced(msg)
            elif isinstance(msg, dict) and self._changes is not None:
                self._changes.logged(topic, msg)

    def restart(self, scheduler: Any) -> None:
        """Record that a client restarts all workers."""
        with self._guard.catching("restart"):
            if self._changes is not None:
                self._changes.restart()

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Record that a worker joined."""
        with self._guard.catching("add_worker"):
            state = scheduler.workers[worker]
            facts = (state.name, state.host, state.nthreads, state.memory_limit or 0)
            self._write(WORKER_ADDED, worker, *facts, dict(state.resources))
            if self._exits is not None:
                self._exits.joined(worker, state)

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str = "", **kwargs: Any
    ) -> Awaitable[None] | None:
        """Record that a worker left, and the reason."""
        with self._guard.catching("remove_worker"):
            reason = stimulus_id.rpartition("-")[0]  # The id ends with a time.
            self._write(WORKER_REMOVED, worker, reason)
            if self._receiver is not None:
                self._receiver.left(worker)
            if scheduler.status.name == "running":
                if reason == _RETIRED:
                    # Dask awaits this. So when `retire_workers` returns, everything that the
                    # retired worker recorded is on disk.
                    return self._settle(worker)
                if reason in _UNASKED and self._exits is not None:
                    self._exits.left(worker)
        return None

    async def _settle(self, worker: str) -> None:
        """Request a leaving worker to write everything that it has recorded, and wait for it."""
        with self._guard.catching("remove_worker"):
            arguments = dumps((self.settings.plugin_name(""),))
            function, limit = dumps(settle_worker), self.settings.response_timeout
            await ask_workers(function, arguments, limit, [worker], self._scheduler)
            await in_thread(self.database.commit)
