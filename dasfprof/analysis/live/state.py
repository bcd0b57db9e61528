"""`RunState`: a snapshot of a run, as the terminal, notebooks and Dask's dashboard show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dasfprof.analysis.live.progress import FunctionProgress


@dataclass(frozen=True)
class WorkerState:
    """A worker, in the scheduler's last row."""

    name: str
    host: str
    address: str
    threads: int
    #: Number of threads that run a task.
    busy: int
    #: Status in Dask's words: running, paused, and so on.
    status: str
    #: Bytes.
    memory: float | None
    memory_limit: float | None
    #: Tasks that run on it, or are assigned to it.
    open_tasks: int
    #: Seconds since its last heartbeat.
    silent_for: float | None


@dataclass(frozen=True)
class LongTask:
    """A task that has run for over 10 s and over three times the mean of its function."""

    key: str
    function: str
    worker: str
    #: State in Dask's words: executing, long-running, or fetching.
    state: str
    seconds: float
    #: Mean of its function's successful tasks, or None if there are none.
    mean_seconds: float | None
    #: ``file:line function``, preferably of the user's code.
    line: str | None = None
    #: Call of Dask that it waits in.
    waits: str | None = None


@dataclass(frozen=True)
class RunState:
    """A snapshot of a run.

    None if unknown, for example if the scheduler's file is on another host.
    """

    run: str
    #: Unix seconds by the scheduler's clock.
    time: float
    #: Unix seconds of the first task.
    began: float | None
    #: Whether it is still being recorded, or None if unknown because its processes are on other
    #: hosts.
    goes_on: bool | None
    functions: tuple[FunctionProgress, ...] = ()
    done: int | None = None
    failed: int | None = None
    on_workers: int | None = None
    waiting: int | None = None
    #: Number of all tasks that the scheduler knows.
    total: int | None = None
    #: Tasks per second that finished in the last 30 s.
    rate: float = 0.0
    #: See `Progress.time_left`.
    seconds_left: float | None = None
    #: Unfinished tasks of functions without a finished one, whose time is not in `seconds_left`.
    unknown_tasks: int = 0
    threads: int | None = None
    busy: int | None = None
    workers: tuple[WorkerState, ...] = ()
    long_tasks: tuple[LongTask, ...] = ()
    #: Seconds since a task last finished, if tasks are left and this is unusually long.
    quiet_for: float | None = None
    #: Whether the files of a run that has ended were closed. If not, it was cut off.
    closed: bool = True
    #: Whether its clients' processes ended without closing their files, so that nobody receives its
    #: results.
    client_is_gone: bool = False
    #: What the files do not contain, as sentences.
    notes: tuple[str, ...] = field(default=())

    @property
    def stands_still(self) -> bool:
        """Whether a part of the run seems not to end. `TraceAnalyser.diagnose` explains why."""
        signs = self.quiet_for is not None or bool(self.long_tasks) or self.client_is_gone
        return signs and self.goes_on is not False

    def counts(self) -> RunState:
        """Return the state without what names tasks, functions or workers."""
        return replace(self, functions=(), workers=(), long_tasks=(), notes=())

    def document(self) -> dict[str, Any]:
        """Return everything as JSON-compatible data."""
        functions = [{**asdict(row), "total": row.total} for row in self.functions]
        return {**asdict(self), "functions": functions}
