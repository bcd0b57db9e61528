"""`WorkerTaskPlugin`: records each task run and each transfer on its worker.

The plugin uses Dask's metering, which measures each task run and each transfer of a worker. It
provides the outcome with the result, and the seconds of CPU, disk, network and deserializing (see
`dasfprof.recording.dask_internals.worker_calls`). If the installed version of Dask has no metering,
no task runs are recorded here, and the analysis uses those that the scheduler recorded.

Hooks run on the worker's event loop. They store the times of unfinished tasks, and append a note
when a task run ends. The writer's thread converts notes into rows (`worker_notes`). A note is a
flat tuple of strings and numbers, which the garbage collector does not track. A few thousand
tracked objects would trigger a full collection, which takes tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from time import time
from typing import Any

from dasfprof.database.writer import Source
from dasfprof.recording.call_profiles import CallProfiles, profile_calls
from dasfprof.recording.dask_internals import names, serialising, worker_calls, worker_functions
from dasfprof.recording.dask_internals.held_locks import watch_locks
from dasfprof.recording.dask_internals.task_functions import observe
from dasfprof.recording.dask_internals.undocumented import with_correction
from dasfprof.recording.dask_internals.worker_calls import (
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    GatherDepDoneEvent,
    RescheduleEvent,
    listen,
)
from dasfprof.recording.plugins.worker_plugin import RecordingPart
from dasfprof.recording.rows import FileRows, SchemaRow, discard
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.stack_samples.sampled_threads import EventLoop, TaskThreads
from dasfprof.recording.stack_samples.sampler import sample_into
from dasfprof.recording.task_runs.arguments import LEAST, TaskArguments
from dasfprof.recording.task_runs.function_code import FunctionCode
from dasfprof.recording.task_runs.hidden_tasks import HiddenTasks, hide_rows, hiding_runs
from dasfprof.recording.task_runs.logs import Tracebacks, watch_logs
from dasfprof.recording.task_runs.outcomes import failed_run, transfer
from dasfprof.recording.task_runs.results import ResultDescriber
from dasfprof.recording.task_runs.task_notes import RUN, worker_notes
from dasfprof.recording.task_runs.task_storage import TaskStorage
from dasfprof.recording.task_runs.thread_time import (
    Collections,
    Reading,
    RunQueue,
    availability,
    cpu_seconds,
)
from dasfprof.recording.under_way.loop import Pulse
from dasfprof.recording.under_way.tasks import TasksUnderWay
from dasfprof.schema.events import Schema
from dasfprof.schema.profiles import LOOP_SAMPLE, TASK_SAMPLE
from dasfprof.schema.tasks import ACTOR_CALL, CLOCK, SHUFFLE_MESSAGE, TRANSFER, WORKER_FUNCTION
from dasfprof.schema.under_way import LOCK_HELD

_READY = ("ready", "constrained")
#: States of ended tasks. `transition` ignores them, because the metering reports more detail.
_ENDS = frozenset(("memory", "error", "forgotten"))
_NEVER_RAN = frozenset(("waiting", "ready", "constrained"))


def _ignore(*_: Any, **__: Any) -> None:
    """Do nothing. This function replaces `WorkerTaskPlugin.transition` if Dask has no metering."""


class WorkerTaskPlugin(RecordingPart):
    """Records the task runs and transfers of a worker. Each worker has a separate file."""

    plugin = "TracePlugin"

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._note: Callable[[tuple[Any, ...]], None] = discard
        self._append: Callable[[SchemaRow], object] = discard
        #: For unfinished tasks, by key: the time at which each entered a state on this worker.
        self._received: dict[Any, float] = {}
        self._ready: dict[Any, float] = {}
        self._executing: dict[Any, float] = {}
        self._seceded: dict[Any, float] = {}
        #: Dask's current correction of the worker's clock, in seconds.
        self._correction = 0.0
        #: For running tasks that got a thread before this correction, by key: the correction at
        #: that time.
        self._earlier: dict[Any, float] = {}
        #: Readings of CPU waits by key. A reading is removed when the note of its run is appended.
        self._readings: dict[Any, Reading] = {}
        #: The last rescheduled task, which Dask may forget before the outcome is reported.
        self._rescheduled: Any = None
        self.call_profiles: CallProfiles | None = None
        self._code: FunctionCode | None = None
        self._arguments: TaskArguments | None = None
        self._actor_calls: worker_calls.ActorCalls | None = None
        #: Keys of other clients' tasks. The texts of these tasks are not recorded.
        self.hidden: Collection[Any] = ()

    def _start(self, worker: Any) -> None:
        """Open the file and place the hooks."""
        self._worker = with_correction(worker)
        header = {"run_queue": availability(), "serialising": serialising.can_observe(worker)}
        if not names.METERING.exist():
            # Nothing would remove the stored times of tasks that have ended.
            self.transition = _ignore  # type: ignore[method-assign]
            header["unmetered"] = True
        database, constants = self._open_database(worker, **header)
        self._writer = database.writer
        self._source = Source(worker_notes(self._guard).fold, constants, width=len(RUN))
        self._tasks, self._threads = worker.state.tasks, worker.threads
        self._describe = ResultDescriber()
        self._plain = self._describe.plain
        self._note = self._writer.extender(self._source)
        rows = FileRows(self._writer, constants, self._guard)
        if self.settings.process:
            self._hide(worker, rows)
        self._append = rows.append
        self._undo.append(self._stop_noting)
        self._note_correction()
        shuffled = partial(self._append_row, SHUFFLE_MESSAGE)
        self._undo.append(worker_calls.observe(worker, shuffled, self._guard))
        if worker_calls.can_observe(worker):
            called = partial(self._append_row, ACTOR_CALL)
            self._actor_calls = worker_calls.ActorCalls(worker, called, self._guard)
            self._undo.append(self._actor_calls.stop)
        if worker_calls.can_observe(worker, "run"):
            ran = partial(self._append_row, WORKER_FUNCTION)
            self._undo.append(worker_functions.FunctionRuns(worker, ran, self._guard).stop)
        self._storage = TaskStorage(worker, rows)
        self._undo.append(self._storage.listen())
        self._moved = self._storage.moved
        collections = Collections(worker, self._guard)
        self._undo.append(collections.stop)
        self._collected = collections.seconds
        metering = listen(worker, self._finished, self._guard)
        if metering is not None:
            self._undo.append(metering.remove)
            run_queue = RunQueue(self._guard, self._storage)
            self._readings = run_queue.readings
            leave = observe(worker, run_queue.wrap)
            self._undo += [run_queue.stop] if leave is None else [run_queue.stop, leave]
        self._watch(worker, rows)
        if self.settings.profiler is not None:
            self.call_profiles = profile_calls(worker, database, rows, self.hidden, self._undo)

    def _hide(self, worker: Any, rows: FileRows) -> None:
        """Start to hide other clients' tasks in notes and rows (see `HiddenTasks`)."""
        tasks = HiddenTasks(worker, self.settings.mark, self.hidden, self._guard)
        self.hidden = tasks.keys
        self.transition = tasks.noting(self.transition)  # type: ignore[method-assign]
        self._note = hiding_runs(self._note, self.hidden, of_worker=True)
        hide_rows(rows, self.hidden)

    def _watch(self, worker: Any, rows: FileRows) -> None:
        """Start to record tasks in progress, stacks, logs, arguments, code and serialization."""
        if names.UNDER_WAY.exist():
            self._undo.append(watch_locks(worker, partial(rows.write, LOCK_HELD)))
            sample = TasksUnderWay(worker, self._received, rows).sample
            self._undo.append(Pulse(f"under-way {worker.name}", sample, self._guard).stop)
        self._undo.append(watch_logs(worker, self.settings, rows))
        self._tracebacks = Tracebacks(rows, self.settings.record_code)
        if self.settings.arguments != "off":
            self._arguments = TaskArguments(worker, rows)
        if self.settings.record_code:
            self._code = FunctionCode(rows)
        serialising.observe(worker, rows.write, self._guard, self._undo)
        frequency, loop = self.settings.stack_frequency, partial(EventLoop, worker)
        threads = partial(TaskThreads, worker, self._executing, self.hidden)
        self._undo.append(sample_into(rows, frequency, LOOP_SAMPLE, loop))
        self._undo.append(sample_into(rows, frequency, TASK_SAMPLE, threads))

    async def teardown(self, worker: Any) -> None:
        """Remove the hooks, and return when everything that was recorded is on disk."""
        if self._actor_calls is not None:
            self._actor_calls.stop()
        self._stop_noting()
        await super().teardown(worker)

    def _stop_noting(self) -> None:
        """Discard notes and rows from now on, because they would no longer be written."""
        self._note = self._append = discard

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Store the time of a task's transition."""
        try:
            if finish in _ENDS:
                return
            if finish == "executing":
                if self._worker.scheduler_delay != self._correction:
                    self._note_correction()
                self._executing[key] = time()
            elif finish == "waiting":
                # A cancelled task run continues if it is requested again before it ends. Then its
                # time stays.
                if key not in self._executing:
                    self._received[key] = time()
            elif finish in _READY:
                self._ready[key] = time()
            elif finish == "long-running":
                self._seceded[key] = time()
            elif finish == "released" and start in _NEVER_RAN:
                self._received.pop(key, None)
                self._ready.pop(key, None)
            elif finish == "rescheduled":
                self._rescheduled = self._tasks[key]
        except Exception:
            self._guard.caught("transition")

    def _note_correction(self) -> None:
        """Record Dask's current correction of this worker's clock."""
        for key in self._executing:
            self._earlier.setdefault(key, self._correction)
        self._correction = self._worker.scheduler_delay
        self._append((CLOCK, (time(), self._correction)))

    def _note_run(self, facts: tuple[Any, ...], metrics: Any) -> None:
        """Append the note of a task run, and remove the stored times of its task.

        `facts` are the items named in `FACTS`.
        """
        key, prefix, run_id = facts[:3]
        if self._worker.scheduler_delay != self._correction:
            self._note_correction()
        cpu, deserialize, disk_read, disk_read_size = None, 0.0, 0.0, 0
        within = False
        for label, value, unit in metrics:  # Inline: a call would cost half as much again.
            if unit == "seconds":
                if label == "thread-cpu":
                    cpu = value if cpu is None else cpu + value
                elif label == "deserialize":
                    deserialize += value
                elif label == "disk-read":
                    disk_read += value
                elif label not in ("thread-noncpu", "executor"):
                    within = True
            elif label == "disk-read" and unit == "bytes":
                disk_read_size += int(value)
        code = self._code
        if code is not None and prefix not in code.known and key not in self.hidden:
            code.record(prefix, self._tasks.get(key))
        storage = self._storage.write(key, run_id) if self._moved else 0.0
        collecting = self._collected.pop(key, 0.0) if self._collected else 0.0
        executing = self._executing.pop(key, None)
        correction = self._earlier.pop(key, self._correction) if self._earlier else self._correction
        received, ready = self._received.pop(key, None), self._ready.pop(key, None)
        seceded = self._seceded.pop(key, None) if self._seceded else None
        # Coroutines have no CPU seconds, because several share the event loop's thread.
        thread = self._threads.get(key) if cpu is not None or not metrics else None
        reading, done = self._readings.pop(key, None), time()
        if within and cpu is not None:
            # Dask subtracts all seconds that are metered within the task, such as waits of P2P
            # shuffles.
            cpu = cpu_seconds(reading, *facts[10:12])
        measured = (
            received,
            ready,
            executing,
            correction,
            seceded,
            done,
            thread,
            reading,
            cpu,
            deserialize,
            disk_read,
            disk_read_size,
            collecting,
            storage,
        )
        self._note(facts + measured)  # In the order of `RUN`.

    def _finished(self, event: Any, ledger: Any) -> None:
        """Record the outcome `event` of a task run or transfer, with Dask's metrics in `ledger`."""
        kind = type(event)
        if kind is ExecuteSuccessEvent:
            self._succeeded(event, ledger)
        elif kind is ExecuteFailureEvent:
            task = self._tasks.get(event.key)  # None if the task was cancelled and forgotten.
            if self._arguments is not None and task is not None:
                self._arguments.record(event.key, event.run_id, task)
            self._tracebacks.record(event.key, event.run_id, event.traceback_text)
            self._note_run(failed_run(event, task), ledger.metrics)
        elif kind is RescheduleEvent:
            # These are tasks that a closing worker does not start.
            if not event.stimulus_id.startswith("worker-closing"):
                self._note_run(failed_run(event, self._rescheduled), ledger.metrics)
            self._rescheduled = None
        elif isinstance(event, GatherDepDoneEvent):
            self._append((TRANSFER, transfer(event, ledger)))

    def _append_row(self, kind: Schema, row: tuple[Any, ...]) -> None:
        self._append((kind, row))

    def _succeeded(self, event: Any, ledger: Any) -> None:
        key = event.key
        task = self._tasks.get(key)
        kind: str | None
        try:
            value = event.value
            kind, dtype, shape = self._plain.get(type(value)) or self._describe(value)
        except Exception:
            self._guard.caught("describing a result")
            kind = dtype = shape = None
        state, prefix, keys, size, text = "cancelled", None, (), 0, None
        if task is not None:
            prefix = task.prefix
            if task.state == "memory":
                state = "memory"
            elif task.state == "error":  # The result could not be stored.
                state, text = "erred", task.exception_text
            if task.dependencies:
                inputs = []
                for (
                    dependency
                ) in task.dependencies:  # Inline: a call would cost half as much again.
                    inputs.append(dependency.key)
                    size += dependency.nbytes or 0
                keys = tuple(inputs)
            if self._arguments is not None and event.stop - event.start >= LEAST:
                self._arguments.record(key, event.run_id, task)
        facts = (
            key,
            prefix,
            event.run_id,
            state,
            event.nbytes,
            kind if state == "memory" else None,
            dtype,
            shape,
            keys,
            size,
            event.start,
            event.stop,
            text,
            None,  # No line raised it: Dask could not store the result.
        )
        self._note_run(facts, ledger.metrics)
