"""`RunState`: a snapshot of a run, for the terminal, for notebooks and for Dask's dashboard."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dasfprof.analysis.live.progress import FunctionProgress


@dataclass(frozen=True)
class WorkerState:
    """A worker, as described by the last state that the scheduler recorded."""

    name: str
    host: str
    address: str
    threads: int
    #: Number of threads that are running a task.
    busy: int
    #: Dask's name of the status, such as running or paused.
    status: str
    #: Memory of the process in bytes, and its limit in bytes.
    memory: float | None
    memory_limit: float | None
    #: Number of tasks that run on the worker or are assigned to it.
    open_tasks: int
    #: Seconds since the scheduler received a heartbeat of the worker.
    silent_for: float | None


@dataclass(frozen=True)
class LongTask:
    """A task that has run for over 10 s and over three times the mean of its function."""

    key: str
    function: str
    worker: str
    #: Dask's name of the state: executing, long-running, or fetching.
    state: str
    seconds: float
    #: Mean seconds of successful tasks of the same function, or None if there are none.
    mean_seconds: float | None
    #: Current location ``file:line function``, in the user's code if possible.
    line: str | None = None
    #: Call of Dask for which the task waits.
    waits: str | None = None


@dataclass(frozen=True)
class RunState:
    """A snapshot of a run.

    A field is None if it is unknown, for example because the scheduler's file is on another host.
    """

    run: str
    #: Time of the snapshot in Unix seconds, by the scheduler's clock.
    time: float
    #: Time of the first task in Unix seconds.
    began: float | None
    #: Whether the run is still being recorded. None if unknown because its processes are on other
    #: hosts.
    goes_on: bool | None
    functions: tuple[FunctionProgress, ...] = ()
    done: int | None = None
    failed: int | None = None
    on_workers: int | None = None
    waiting: int | None = None
    #: Number of all tasks that the scheduler knows.
    total: int | None = None
    #: Number of tasks per second that finished in the last 30 s.
    rate: float = 0.0
    #: Estimated remaining seconds. See `Progress.time_left`.
    seconds_left: float | None = None
    #: Number of unfinished tasks whose function has not finished any task. `seconds_left` does not
    #: include their time.
    unknown_tasks: int = 0
    threads: int | None = None
    busy: int | None = None
    workers: tuple[WorkerState, ...] = ()
    long_tasks: tuple[LongTask, ...] = ()
    #: Seconds since a task last finished, if tasks are left and this is unusually long.
    quiet_for: float | None = None
    #: Whether the files of an ended run were closed. If not, the run was cut off.
    closed: bool = True
    #: Whether the processes of all clients ended without closing their files, so that nobody will
    #: receive the results of the run.
    client_is_gone: bool = False
    #: Sentences about data that the files lack.
    notes: tuple[str, ...] = field(default=())

    @property
    def stands_still(self) -> bool:
        """Whether a part of the run seems to hang."""
        signs = self.quiet_for is not None or bool(self.long_tasks) or self.client_is_gone
        return signs and self.goes_on is not False

    def counts(self) -> RunState:
        """Return the state without fields that name tasks, functions or workers."""
        return replace(self, functions=(), workers=(), long_tasks=(), notes=())

    def document(self) -> dict[str, Any]:
        """Return all fields as JSON-compatible data."""
        functions = [{**asdict(row), "total": row.total} for row in self.functions]
        return {**asdict(self), "functions": functions}
