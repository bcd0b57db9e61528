"""`LocalTasks`: records task runs of Dask's local schedulers in files like those of workers."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import uuid
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from dask.utils import key_split

from dasfprof.database.writer import Source
from dasfprof.recording.dask_internals.local_schedulers import PROCESSES, LocalTaskRun
from dasfprof.recording.dask_internals.local_task import TaskFacts
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.recording.rows import FileRows
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.stack_samples.sampled_threads import TaskThreads
from dasfprof.recording.stack_samples.sampler import sample_into
from dasfprof.recording.task_runs.arguments import LEAST, TaskArguments
from dasfprof.recording.task_runs.function_code import FunctionCode
from dasfprof.recording.task_runs.logs import Tracebacks, raised_at
from dasfprof.recording.task_runs.task_notes import RUN, worker_notes
from dasfprof.recording.task_runs.task_storage import TaskStorage
from dasfprof.recording.task_runs.thread_time import (
    BRIEF,
    Reading,
    ThreadFile,
    availability,
)
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.recording.under_way.tasks import TasksUnderWay
from dasfprof.schema.profiles import TASK_SAMPLE

#: Reading of a task run in another process. The CPU waits of such task runs are unknown.
_NOT_READ: Reading = (None, None, 0.0, False, 0.0)
_NO_WAITS = "not read in processes of a pool"


class LocalTasks(RecordingPart):
    """Records the task runs of one of Dask's local schedulers into a separate file.

    Parameters
    ----------
    worker
        An object that presents the scheduler as a worker.
    """

    plugin = "TracePlugin"

    def __init__(self, settings: RunSettings, worker: LocalWorker) -> None:
        super().__init__(settings)
        self.worker = worker
        self._note: Callable[[tuple[Any, ...]], None] | None = None
        self._ids = itertools.count(1)
        #: By thread: the number of the task run in this thread, and the text of the thread's
        #: `ThreadFile` at its start, or None if the text was not read.
        self._open: dict[int, tuple[int, bytes | None]] = {}
        #: The `ThreadFile` of each thread.
        self._local = threading.local()

    def _start(self, worker: LocalWorker) -> None:
        """Open the file, and start to record task runs, tasks in progress and stacks."""
        waits = _NO_WAITS if worker.scheduler == PROCESSES else availability()
        header = {"local_scheduler": worker.scheduler, "run_queue": waits}
        self._reads_waits = waits == "available"
        self._is_here = worker.scheduler != PROCESSES
        database, constants = self._open_database(worker, **header)
        writer = database.writer
        note = writer.extender(Source(worker_notes(self._guard).fold, constants, width=len(RUN)))
        rows = FileRows(writer, constants, self._guard)
        self._storage = TaskStorage(worker, rows)
        self._undo.append(self._storage.listen())
        self._tracebacks = Tracebacks(rows, self.settings.record_code)
        self._code = FunctionCode(rows) if self.settings.record_code else None
        has_arguments = self.settings.arguments != "off"
        self._arguments = TaskArguments(worker, rows) if has_arguments else None
        sample = TasksUnderWay(worker, worker.executing, rows).sample
        self._undo.append(Pulse(f"under-way {worker.name}", sample, self._guard).stop)
        threads = partial(TaskThreads, worker, worker.executing, ())
        frequency = self.settings.stack_frequency
        self._undo.append(sample_into(rows, frequency, TASK_SAMPLE, threads))
        self._note = note
        self._undo.append(self._stop_noting)

    def _stop_noting(self) -> None:
        self._note = None
        self._local = threading.local()

    def began(self, run: LocalTaskRun) -> None:
        """Record that a task starts. Called in the thread that runs the task."""
        if self._note is None:
            return
        try:
            run_id = next(self._ids)
            self.worker.begins(run, run_id, key_split(run.facts.key))
            file = self._thread_file()
            self._open[run.facts.thread] = run_id, None if file.was_brief else file.read()
        except Exception:
            self._guard.caught("the start of a task")

    def ended(self, run: LocalTaskRun) -> int | None:
        """Record a task run that has ended, and return its run_id, or None if not recorded."""
        note, facts = self._note, run.facts
        if note is None:
            return None
        try:
            task, reading = self.worker.ends(run), _NOT_READ
            if facts.thread in self._open:
                run_id, before = self._open.pop(facts.thread)
                reading = self._waits(facts, before)
            else:
                run_id = next(self._ids)
            self._record_texts(run, run_id, task)
            note(self._row(run, run_id, reading))
            return run_id
        except Exception:
            self._guard.caught("the end of a task")
            return None

    def _thread_file(self) -> ThreadFile:
        """Return the `ThreadFile` from which the CPU waits of this thread are read."""
        try:
            file: ThreadFile = self._local.file
        except AttributeError:
            file = self._local.file = ThreadFile(self._reads_waits)
            self._storage.begin_thread()
        return file

    def _waits(self, facts: TaskFacts, before: bytes | None) -> Reading:
        """Return the `Reading` of CPU waits for a task that has ended in this thread.

        `before` is the text of the thread's `ThreadFile` at the task's start. It is None if the
        file was not read then.
        """
        start, stop, file = facts.start, facts.stop, self._thread_file()
        if start is None or stop is None:
            return before, file.read(), 0.0, False, 0.0
        reading = file.reading(before, start, stop, 0.0)
        if file.read_at == stop:
            self._storage.ended(facts.key, stop, stop - start < BRIEF)
        return reading

    def _record_texts(self, run: LocalTaskRun, run_id: int, task: Any) -> None:
        """Record the traceback, the code and the arguments of a task run, as far as known."""
        facts = run.facts
        if facts.traceback is not None:
            self._tracebacks.record(facts.key, run_id, facts.traceback)
        if task is None:
            return
        if self._code is not None and task.prefix not in self._code.known:
            self._code.record(task.prefix, task)
        if self._arguments is not None:
            seconds = (facts.stop or 0.0) - (facts.start or 0.0)
            if seconds >= LEAST or facts.exception is not None:
                self._arguments.record(facts.key, run_id, task)

    def _row(self, run: LocalTaskRun, run_id: int, reading: Reading) -> tuple[Any, ...]:
        facts, failed = run.facts, run.facts.exception is not None
        moved = self._storage.moved
        # A process of a pool receives a task when it starts the task. When the task is sent, the
        # process may be busy or may not exist yet.
        received = run.sent if self._is_here else max(run.sent, facts.taken)
        row = {
            **vars(facts),
            "run_id": run_id,
            "state": "erred" if failed else "memory",
            "dependencies": run.inputs,
            "input_size": run.input_size,
            "raised_at": raised_at(facts.traceback) if failed else None,
            "received": received,
            "ready": received,
            "executing": facts.taken,
            "correction": 0,
            "done": facts.ended,
            "thread": None if facts.start is None else facts.thread,
            "reading": reading,
            "deserialize": 0.0 if facts.start is None else facts.start - facts.taken,
            "disk_read": 0.0,
            "disk_read_size": 0,
            "storage": self._storage.write(facts.key, run_id) if moved else 0.0,
        }
        return tuple(map(row.get, RUN))


class LocalWorker:
    """Presents one of Dask's local schedulers as a worker, with the attributes that recorders read.

    Parameters
    ----------
    scheduler
        ``threads``, ``sync`` or ``processes``.
    slots
        Number of tasks that the scheduler runs at the same time.
    """

    def __init__(self, scheduler: str, slots: int, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.id = f"{name}-{uuid.uuid4().hex[:8]}"
        self.address = f"local://{socket.gethostname()}/{os.getpid()}/{name}"
        self.local_directory = os.getcwd()
        self.data: dict[Any, Any] = {}
        self.state = SimpleNamespace(tasks={}, nthreads=slots, executing=(), waiting=())
        #: Keys of running tasks by thread identity, and start times of running tasks by key.
        self.active_threads: dict[int, Any] = {}
        self.active_threads_lock = threading.Lock()
        self.executing: dict[Any, float] = {}

    def begins(self, run: LocalTaskRun, run_id: int, prefix: str) -> None:
        """Add a task that starts in a thread of this process to the running tasks."""
        facts = run.facts
        self.state.tasks[facts.key] = SimpleNamespace(
            key=facts.key,
            prefix=prefix,
            run_id=run_id,
            run_spec=run.task,
            state="executing",
            start_time=facts.taken,
            dependencies=(),
        )
        self.executing[facts.key] = facts.taken
        with self.active_threads_lock:
            self.active_threads[facts.thread] = facts.key

    def ends(self, run: LocalTaskRun) -> Any:
        """Remove a task that has ended, and return it, or None if it is unknown."""
        with self.active_threads_lock:
            self.active_threads.pop(run.facts.thread, None)
        self.executing.pop(run.facts.key, None)
        return self.state.tasks.pop(run.facts.key, None)

    def runs_in(self, thread: int) -> bool:
        """Return whether a thread runs a task."""
        return thread in self.active_threads
