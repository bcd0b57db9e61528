"""What is known of a run at a moment: `RunState` and its rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FunctionProgress:
    """How far the tasks of a function are, in a step of the pipeline.

    A number is None where the files do not tell it.
    """

    #: None: in no step, or in none that is known yet.
    step: str | None
    function: str
    done: int
    failed: int
    #: Tasks that run on a worker, or are next there.
    on_workers: int | None = None
    waiting: int | None = None
    #: All of these: what the scheduler knows of, no more.
    total: int | None = None
    #: Task runs a second that ended in the last 30 s.
    rate: float = 0.0
    #: Of a run in its thread.
    mean_seconds: float | None = None


@dataclass(frozen=True)
class WorkerState:
    """What a worker did when it was last heard of."""

    name: str
    host: str
    address: str
    threads: int | None = None
    #: Threads that run a task.
    busy: int | None = None
    #: Dask's word: running, paused, ...
    status: str | None = None
    #: Bytes.
    memory: float | None = None
    memory_limit: float | None = None
    #: Tasks that run there, or are next.
    open_tasks: int | None = None
    #: Seconds since its last sign.
    silent_for: float | None = None


@dataclass(frozen=True)
class LongTask:
    """A task that runs over 10 s and over three times as long as others of its function."""

    key: str
    function: str
    worker: str
    #: Dask's word: executing, long-running, fetching, cancelled.
    state: str
    seconds: float
    #: Of its function's runs that ended; None: none has.
    median_seconds: float | None
    #: ``file:line function``, of the user's code if any of it is on the stack.
    line: str | None = None
    #: What of Dask's it waits for, in words.
    waits: str | None = None


@dataclass(frozen=True)
class RunState:
    """A run at a moment."""

    run: str
    #: Unix seconds, by the scheduler's clock.
    time: float
    #: Unix seconds; None: nothing is known to have begun.
    began: float | None
    #: Whether it is still being recorded; None: nothing tells (its processes are elsewhere).
    goes_on: bool | None
    functions: tuple[FunctionProgress, ...] = ()
    done: int = 0
    failed: int = 0
    on_workers: int | None = None
    waiting: int | None = None
    total: int | None = None
    #: Whether there may be fewer: the sizes of graphs also count tasks that others brought before.
    total_is_bound: bool = False
    rate: float = 0.0
    #: Seconds until what the scheduler knows of is done, at the pace of the last 30 s, but for
    #: `unknown_tasks`.
    seconds_left: float | None = None
    #: Tasks left of functions of which no run has ended: nothing tells their length.
    unknown_tasks: int = 0
    threads: int | None = None
    busy: int | None = None
    workers: tuple[WorkerState, ...] = ()
    long_tasks: tuple[LongTask, ...] = ()
    #: Seconds since a task last ended, where tasks are left and that is longer than these took.
    quiet_for: float | None = None
    #: Whether the files of a run that does not go on were closed: else it was cut off.
    closed: bool = True
    #: Whether its clients' processes ended without closing their files: nobody takes its results.
    client_is_gone: bool = False
    #: What the files do not tell, in words.
    notes: tuple[str, ...] = field(default=())

    @property
    def stands_still(self) -> bool:
        """Whether something of it seems not to end; `TraceAnalyser.diagnose` tells why."""
        signs = self.quiet_for is not None or bool(self.long_tasks) or self.client_is_gone
        return signs and self.goes_on is not False

    def document(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return asdict(self)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return everything as DataFrames: ``total``, ``functions``, ``workers``, ``long_tasks``.

        Columns of ``functions`` and of ``total`` (one row): Done, Failed, On Workers, Waiting,
        Total, Rate (1/s), and Mean Duration (s) or Time Left (s) and threads. Unknown is NA.
        """
        import pandas as pd

        counts = {"Done": "done", "Failed": "failed", "On Workers": "on_workers"}
        counts |= {"Waiting": "waiting", "Total": "total", "Rate (1/s)": "rate"}
        functions = {"Step": "step", "Function": "function", **counts}
        functions["Mean Duration (s)"] = "mean_seconds"
        total = {"Run": "run", "Goes On": "goes_on", **counts}
        total |= {"Time Left (s)": "seconds_left", "Busy Threads": "busy", "Threads": "threads"}
        workers = {"Worker": "name", "Host": "host", "Address": "address", "Status": "status"}
        workers |= {"Busy Threads": "busy", "Threads": "threads", "Open Tasks": "open_tasks"}
        workers |= {"Memory (B)": "memory", "Memory Limit (B)": "memory_limit"}
        workers["Silent For (s)"] = "silent_for"
        long = {"Task Key": "key", "Function": "function", "Worker": "worker", "State": "state"}
        long |= {"Duration (s)": "seconds", "Median Duration (s)": "median_seconds"}
        long |= {"Line": "line", "Waits For": "waits"}
        columns = (
            ("total", total, [self]),
            ("functions", functions, self.functions),
            ("workers", workers, self.workers),
            ("long_tasks", long, self.long_tasks),
        )
        return {
            name: pd.DataFrame(
                {label: [getattr(row, field) for row in rows] for label, field in labels.items()}
            ).convert_dtypes()
            for name, labels, rows in columns
        }
