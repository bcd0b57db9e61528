"""`WorkerTaskPlugin`: records each task run and each transfer on its worker.

Where this Dask has it, the worker's own metering of instructions is the source: the private
method `_finalize_metrics` gets, after each execution and each transfer, the outcome with the
result still at hand and a ledger of seconds (CPU, disk, network, deserialise). It is replaced on
the instance and put back. Elsewhere the public `transition` hook serves, without those seconds.

Hooks run on the worker's event loop. They only append tuples; `TaskFolder`, in the writer's
thread, makes rows of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker_state_machine import (
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    GatherDepBusyEvent,
    GatherDepDoneEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
)

from dasfprof.database.writer import Source
from dasfprof.recording.describe import ResultDescriber
from dasfprof.recording.guard import HookGuard
from dasfprof.recording.settings import RunSettings
from dasfprof.recording.task_folder import FETCHED, FINISHED, FORGOTTEN, TaskFolder

#: The worker's own per-instruction metering, absent from some future Dask.
METRICS_HOOK = "_finalize_metrics"

_TIMED_STATES = frozenset(("waiting", "ready", "constrained", "executing", "long-running"))
_NEVER_RAN = frozenset(("waiting", "ready", "constrained"))
_RUNNING = ("executing", "long-running")


def worker_facts(worker: Any) -> dict[str, Any]:
    """Give what the headers of a worker's files say of it, with the label used in events."""
    host = socket.gethostname()
    return {
        "id": worker.id,
        "name": worker.name,
        "address": worker.address,
        "label": f"worker-{host}-{worker.name}",
        "nthreads": worker.state.nthreads,
        "memory_limit": worker.memory_manager.memory_limit or 0,
    }


class WorkerTaskPlugin(WorkerPlugin):
    """Records task runs and transfers of a worker into a file of its own.

    Parameters
    ----------
    settings
        The run that it records for.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.name = settings.plugin_name("TracePlugin")
        self._guard = HookGuard()
        self._uninstall: Callable[[], None] | None = None

    def setup(self, worker: Any) -> None:
        """Open the file and place the hooks; a failure is logged and leaves the worker alone."""
        try:
            self._worker = worker
            facts = worker_facts(worker)
            self.database = self.settings.open_database(
                "TracePlugin", str(worker.name), {"worker": facts}
            )
            writer = self.database.writer
            self._guard = HookGuard(writer)
            constants = {"process_id": socket.gethostname(), "thread_id": facts["label"]}
            folder = TaskFolder()
            self._source = Source(folder.fold, constants)
            self._append = self._source.rows.append
            self._threshold = writer.commit_threshold
            self._tasks = worker.state.tasks
            self._describe = ResultDescriber()
            writer.start(self._source)
            if hasattr(worker, METRICS_HOOK):
                self._uninstall = _wrap_metrics(worker, self._finished)
        except Exception:
            self._guard.caught("setup")

    async def teardown(self, worker: Any) -> None:
        """Put the hooks back and return when everything recorded is on disk."""
        try:
            if self._uninstall is not None:
                self._uninstall()
                self._uninstall = None
            await asyncio.to_thread(self.database.close)
        except Exception:
            self._guard.caught("teardown")

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Note when a task's state changed."""
        try:
            if finish in _TIMED_STATES:
                self._append((finish, key, time(), self._worker.scheduler_delay))
            elif finish == "released" and start in _NEVER_RAN:
                self._append((FORGOTTEN, key))
            elif self._uninstall is None and start in _RUNNING:
                self._finished_by_state(key, finish)
        except Exception:
            self._guard.caught("transition")

    def _finished(self, event: Any, ledger: Any) -> None:
        """Note an instruction's outcome; called by the worker's metering."""
        try:
            kind = type(event)
            if kind is ExecuteSuccessEvent:
                self._succeeded(event, ledger)
            elif kind is ExecuteFailureEvent:
                self._failed(event, ledger, "erred", event.exception_text)
            elif kind is RescheduleEvent:
                self._failed(event, ledger, "rescheduled", None)
            elif isinstance(event, GatherDepDoneEvent):
                self._fetched(event, ledger)
            if len(self._source.rows) >= self._threshold:
                self.database.writer.threshold_reached(self._source)
        except Exception:
            self._guard.caught("_finalize_metrics")

    def _succeeded(self, event: Any, ledger: Any) -> None:
        key = event.key
        task = self._tasks.get(key)
        dtype, shape = self._describe(event.value)
        state, prefix, keys, size = "cancelled", None, [], 0
        if task is not None:
            prefix = task.prefix
            if task.state == "memory":
                state = "memory"
            for dependency in task.dependencies:
                keys.append(dependency.key)
                size += dependency.nbytes or 0
        self._append(
            (
                FINISHED,
                key,
                prefix,
                event.run_id,
                state,
                event.nbytes,
                event.type,
                dtype,
                shape,
                keys,
                size,
                self._worker.threads.get(key),
                event.start,
                event.stop,
                time(),
                ledger.metrics,
                None,
            )
        )

    def _failed(self, event: Any, ledger: Any, state: str, text: str | None) -> None:
        key, now = event.key, time()
        task = self._tasks.get(key)
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None:  # rescheduled, or it failed before the user's function was called
            start = now - (perf_counter() - ledger.start) + self._worker.scheduler_delay
            stop = now + self._worker.scheduler_delay
        run_id = getattr(event, "run_id", None)
        dependencies = list(task.dependencies) if task is not None else []
        self._append(
            (
                FINISHED,
                key,
                task.prefix if task is not None else None,
                task.run_id if run_id is None and task is not None else run_id,
                state,
                0,
                None,
                None,
                None,
                [dependency.key for dependency in dependencies],
                sum(dependency.nbytes or 0 for dependency in dependencies),
                self._worker.threads.get(key),
                start,
                stop,
                now,
                ledger.metrics,
                text,
            )
        )

    def _fetched(self, event: Any, ledger: Any) -> None:
        kind = type(event)
        keys: list[Any] = []
        if kind is GatherDepSuccessEvent:
            keys = list(event.data)
            state = "success" if keys else "missing"
        else:
            state = "busy" if kind is GatherDepBusyEvent else "failed"
        seconds = perf_counter() - ledger.start
        size = event.total_nbytes if state == "success" else 0
        start = time() - seconds
        self._append((FETCHED, start, seconds, event.worker, keys, size, state, ledger.metrics))

    def _finished_by_state(self, key: Any, finish: str) -> None:
        """Note a finished run by public means alone: no seconds of CPU, disk and network."""
        task = self._tasks[key]
        span = next((s for s in reversed(task.startstops) if s["action"] == "compute"), None)
        state = {"memory": "memory", "error": "erred"}.get(finish, "cancelled")
        now = time()
        delayed = now + self._worker.scheduler_delay
        # `data[key]` would unspill and reorder: only what is plainly in memory is looked at.
        data = self._worker.data
        fast = getattr(getattr(data, "fast", data), "d", data)
        dtype, shape = self._describe(fast.get(key) if isinstance(fast, dict) else None)
        self._append(
            (
                FINISHED,
                key,
                task.prefix,
                task.run_id,
                state,
                task.nbytes or 0 if state == "memory" else 0,
                task.type,
                dtype,
                shape,
                [dependency.key for dependency in task.dependencies],
                sum(dependency.nbytes or 0 for dependency in task.dependencies),
                self._worker.threads.get(key),
                span["start"] if span else delayed,
                span["stop"] if span else delayed,
                now,
                (),
                task.exception_text or None if state == "erred" else None,
            )
        )


def _wrap_metrics(worker: Any, observe: Callable[[Any, Any], None]) -> Callable[[], None]:
    """Call `observe` before the worker's metering; gives a function that puts it back."""
    original = getattr(worker, METRICS_HOOK)
    active = True

    def finalize(stim: Any, ledger: Any, *args: Any, **kwargs: Any) -> Any:
        if active:
            observe(stim, ledger)
        return original(stim, ledger, *args, **kwargs)

    setattr(worker, METRICS_HOOK, finalize)

    def uninstall() -> None:
        nonlocal active
        active = False
        # Where somebody else wrapped it since, ours stays below theirs and passes the call on.
        if vars(worker).get(METRICS_HOOK) is finalize:
            if getattr(original, "__self__", None) is worker:
                delattr(worker, METRICS_HOOK)
            else:
                setattr(worker, METRICS_HOOK, original)

    return uninstall
