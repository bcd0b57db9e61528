"""`LocalWorker`: what looks at workers sees one of Dask's own schedulers as one."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from types import SimpleNamespace
from typing import Any

from dasfprof.recording.dask_internals.local_schedulers import Run
from dasfprof.recording.stack_samples.schedule import REST


class LocalWorker:
    """Stands for a worker: one of Dask's own schedulers in this process.

    Parameters
    ----------
    scheduler
        ``threads``, ``sync`` or ``processes``.
    slots
        How many tasks it runs at a time.
    name
        What it is called.
    """

    def __init__(self, scheduler: str, slots: int, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.id = f"{name}-{uuid.uuid4().hex[:8]}"
        self.address = f"local://{socket.gethostname()}/{os.getpid()}/{name}"
        self.local_directory = os.getcwd()
        self.data: dict[Any, Any] = {}
        self.state = SimpleNamespace(tasks={}, nthreads=slots, executing=(), waiting=())
        #: Keys by the identities of threads that run them, and when runs began, by key.
        self.active_threads: dict[int, Any] = {}
        self.active_threads_lock = threading.Lock()
        self.executing: dict[Any, float] = {}

    def begins(self, run: Run, run_id: int, prefix: str) -> None:
        """Take in a task that begins in a thread of this process."""
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
        if REST.lasts:
            REST.end()

    def ends(self, run: Run) -> Any:
        """Forget a task; return what was known of it."""
        with self.active_threads_lock:
            self.active_threads.pop(run.facts.thread, None)
        self.executing.pop(run.facts.key, None)
        return self.state.tasks.pop(run.facts.key, None)

    def runs_in(self, thread: int) -> bool:
        """Return whether a thread runs a task."""
        return thread in self.active_threads
