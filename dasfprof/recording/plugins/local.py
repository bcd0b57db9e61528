"""`LocalRecorder`: records programs without a cluster, on Dask's local schedulers.

Each local scheduler is recorded as a worker with the scheduler's name, and with one thread for each
slot of its pool. The thread that computes the graph is recorded as the scheduler, because it knows
graphs, runnable tasks and outcomes. So such a run has the same files, tables and findings as a run
on a cluster, except that it has no transfers, spilling, stealing or heartbeats.
"""

from __future__ import annotations

import itertools
import socket
import threading
import uuid
from collections.abc import Callable
from time import time
from typing import Any

from dasfprof.database import FileDatabase
from dasfprof.database.writer import Source
from dasfprof.recording.dask_internals import client_calls
from dasfprof.recording.dask_internals.local_schedulers import (
    PROCESSES,
    Compute,
    LocalTaskRun,
    observe_computes,
)
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.plugins.local_tasks import LocalTasks, LocalWorker
from dasfprof.recording.plugins.resources import ResourceMonitor
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.recording.probes.host import Probe
from dasfprof.recording.probes.process import FamilyUsage
from dasfprof.recording.rows import FileRows
from dasfprof.recording.settings import RunSettings, recorded_settings
from dasfprof.recording.shipping.sender import Sender
from dasfprof.recording.shipping.targets import upload_files
from dasfprof.recording.stack_samples.sampled_threads import ClientThread
from dasfprof.recording.steps import step as steps
from dasfprof.recording.steps.step import Submission
from dasfprof.recording.task_runs.task_notes import SENT_RUN, scheduler_notes
from dasfprof.schema.tasks import GRAPH, WORKER_ADDED

#: The client's id in the files of a run that uses no cluster.
NO_CLIENT = "no cluster"


class LocalMonitor(ResourceMonitor):
    """Samples the program's process, the host, and the processes of the pool if there is one."""

    def _of_worker(self, worker: Any, usage: Callable[..., Probe]) -> list[Probe]:
        return [usage(FamilyUsage()) if worker.scheduler == PROCESSES else usage()]


class ProgramThread(ClientThread):
    """The main thread of a program, which is not sampled while it runs a task."""

    #: Returns whether a thread runs a task. The recorder replaces this function.
    in_task: Callable[[int], bool] = staticmethod(lambda _: False)

    def threads(self) -> dict[int, Any]:
        """Return the main thread, or nothing while it runs a task."""
        threads = super().threads()
        return {thread: doing for thread, doing in threads.items() if not self.in_task(thread)}


class SchedulerFile:
    """Writes graphs and tasks of local schedulers to a file like that of a cluster's scheduler."""

    def __init__(self, settings: RunSettings) -> None:
        header = {"settings": recorded_settings(settings), "local": True}
        host = socket.gethostname()
        header["scheduler"] = {"id": f"local-{uuid.uuid4().hex}", "address": f"local://{host}"}
        self.database: FileDatabase = settings.open_database("SchedulerPlugin", "scheduler", header)
        writer = self.database.writer
        self._host = host
        constants = {"process_id": host, "thread_id": "scheduler"}
        guard = HookGuard(writer)
        source = Source(scheduler_notes(guard).fold, constants, width=len(SENT_RUN))
        self._note = writer.extender(source)
        self._append = FileRows(writer, constants, guard).append
        self._numbers = itertools.count(1)
        #: For each computation in progress: its number, and how many of its tasks have ended.
        self._graphs: dict[Compute, list[int]] = {}

    def add_worker(self, worker: LocalWorker) -> None:
        """Record a local scheduler as a worker."""
        facts = worker.address, worker.name, self._host, worker.state.nthreads
        self._append((WORKER_ADDED, (time(), *facts, 0, {})))

    def begin(self, compute: Compute) -> None:
        """Record that the computation of a graph starts."""
        self._graphs[compute] = [next(self._numbers), 0]

    def end(self, compute: Compute) -> None:
        """Record the graph of a computation that has ended.

        Only then is the graph's number of tasks known.
        """
        number, tasks = self._graphs.pop(compute, (0, 0))
        if number:
            facts = NO_CLIENT, tasks, compute.wanted, _stimulus(number), compute.step
            self._append((GRAPH, (compute.began, *facts)))

    def ended(self, compute: Compute, run: LocalTaskRun, run_id: int, address: str) -> None:
        """Append the note of a task run that has ended."""
        graph = self._graphs.get(compute)
        if graph is None:
            return
        graph[1] += 1
        number, order = graph
        row = {
            **vars(run.facts),
            "timestamp": run.sent,
            "now": run.done,
            "cause": f"{_stimulus(number)}-sent-{order}",
            "run_id": run_id,
            "worker": address,
            "priority": (0, -number, order),
            "state": "memory" if run.facts.exception is None else "erred",
            "waiting": run.graph_known,
            "graph": _stimulus(number),
            "queued": run.ready if run.ready < run.sent else None,
            "wanted": 0,
            "end_cause": f"{_stimulus(number)}-ended-{order}",
        }
        self._note(tuple(map(row.get, SENT_RUN)))

    def close(self) -> None:
        """Write pending rows and the graphs of computations in progress."""
        for compute in list(self._graphs):
            self.end(compute)
        self.database.close()


def _stimulus(number: int) -> str:
    return f"compute-{number}"


class LocalRecorder:
    """Records this process's computations on Dask's local schedulers until `stop` is called."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._guard = HookGuard()
        #: The recorder of each pool, by the scheduler's name and the pool's number of slots.
        self._tasks: dict[tuple[str, int], LocalTasks] = {}
        self._scheduler: SchedulerFile | None = None
        self._parts: list[RecordingPart] = []
        self._senders: list[Sender] = []
        self._stopped = False
        self._leave: Callable[[], None] = lambda: None
        #: Number of computations since recording started.
        self.computes_seen = 0

    def start(self) -> None:
        """Start recording."""
        client_calls.of_dask.enter()
        self._leave = observe_computes(self)

    def stop(self) -> None:
        """Stop recording, and return when all rows of ended tasks are on disk. Idempotent."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._leave()
        client_calls.of_dask.leave()
        if self._scheduler is not None:
            self._guard.call_all("stop", [self._scheduler.close])
        for part in self._parts:
            part.end()
        for sender in self._senders:
            self._guard.call_all("stop", [sender.finish])

    def commit(self) -> None:
        """Write everything that was recorded before the call, to disk and to the run's storage."""
        files = [part.database for part in (*self._parts, self._scheduler) if part is not None]
        for file in (*files, *self._senders):
            if file is not None:
                file.commit()

    def runs_task(self, thread: int) -> bool:
        """Return whether a thread is running a task."""
        return any(tasks.worker.runs_in(thread) for tasks in list(self._tasks.values()))

    def computes(self, compute: Compute) -> None:
        """Record a new computation. If it is the first of its pool, open the files of the pool."""
        opened = steps.current_step()
        compute.step = None if opened is None else opened.names
        with self._lock:
            self.computes_seen += 1
            if self._stopped:
                return
            if self._scheduler is None:
                self._scheduler = SchedulerFile(self.settings)
                self._upload([self._scheduler.database], "the program")
            if _pool(compute) not in self._tasks:
                self._open(*_pool(compute))
            self._scheduler.begin(compute)
        sent = Submission(NO_CLIENT, time(), None, None, [], client_calls.line())
        for observer in steps.observers:
            observer.submitted(sent)

    def _open(self, scheduler: str, slots: int) -> None:
        """Open the files of a local scheduler's pool."""
        is_first = all(scheduler != name for name, _ in self._tasks)
        name = scheduler if is_first else f"{scheduler}-{slots}"
        worker = LocalWorker(scheduler, slots, name)
        tasks = LocalTasks(self.settings, worker)
        parts: list[RecordingPart] = [tasks]
        if not self._tasks:  # One monitor samples the process for all pools.
            parts.append(LocalMonitor(self.settings))
        for part in parts:
            part.plugins = [each.plugin for each in parts]
            part.setup(worker)
        self._tasks[scheduler, slots] = tasks
        self._parts += parts
        if self._scheduler is not None:
            self._scheduler.add_worker(worker)
        self._upload([part.database for part in parts if part.database is not None], name)

    def _upload(self, databases: list[FileDatabase], owner: str) -> None:
        sender = upload_files(self.settings, owner, databases)
        self._senders += [] if sender is None else [sender]

    def began(self, compute: Compute, run: LocalTaskRun) -> None:
        """Record that a task starts."""
        self._tasks[_pool(compute)].began(run)

    def ended(self, compute: Compute, run: LocalTaskRun) -> None:
        """Record that a task has ended."""
        tasks = self._tasks[_pool(compute)]
        run_id = tasks.ended(run)
        if run_id is not None and self._scheduler is not None:
            self._scheduler.ended(compute, run, run_id, tasks.worker.address)

    def computed(self, compute: Compute) -> None:
        """Record that a computation has ended, and how long the program waited for it."""
        if self._scheduler is not None:
            self._scheduler.end(compute)
        seconds = max(time() - compute.began, 0.0)
        client_calls.waited(compute.began, seconds, compute.wanted)


def _pool(compute: Compute) -> tuple[str, int]:
    return compute.scheduler, compute.slots
