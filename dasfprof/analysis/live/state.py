"""What is known of a run at a moment: `RunState` and its rows, and what follows of totals."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dasfprof.analysis.live.counts import EndedRuns, TaskCounts, Unfinished
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.sent_functions import SentFunctions
from dasfprof.analysis.under_way.state import Frame, user_line
from dasfprof.database.ends import RecordingEnd

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


@dataclass(frozen=True)
class OpenTask:
    """A task under way, as it was last written."""

    key: str
    function: str
    state: str
    #: Unix seconds, by the worker's clock.
    since: float
    #: When it was written.
    seen: float
    #: The frames of its stack as they were recorded.
    frames: tuple[Any, ...]
    waits: str | None


# --- What follows from running totals: the time left, the tasks that run unusually long -----------

#: A task runs long beyond so many seconds and so many times the median of its function.
LONG_SECONDS, LONG_TIMES = 10.0, 3.0
#: Seconds that what has ended may take to be in the file.
_LAG = 2.0
_MOST_LONG = 100

_NO_COUNTS = "How many tasks of each function wait is not recorded in this run."


def describe(
    run: str,
    now: float,
    written: float,
    goes_on: bool | None,
    *,
    counts: TaskCounts,
    unfinished: Unfinished,
    tasks_of_graphs: int | None,
    workers: list[WorkerState],
    long_tasks: list[LongTask],
    elsewhere: frozenset[str | None] = frozenset(),
    closed: bool = True,
    client_is_gone: bool = False,
    notes: tuple[str, ...] = (),
) -> RunState:
    """Put a state together.

    Parameters
    ----------
    run, goes_on, workers, long_tasks, closed, client_is_gone, notes
        As in `RunState`.
    elsewhere
        Steps after which others began, which may have tasks of the same functions.
    now, written
        Unix seconds by the scheduler's clock: now, and when its file was last written.
    counts, unfinished
        The running totals.
    tasks_of_graphs
        Number of tasks of all graphs that arrived; None: not known.
    """
    measured = max(written, now - _LAG)
    counted = unfinished.counted is not None
    functions = _functions(counts, unfinished.now() if counted else None, measured, elsewhere)
    done, failed = int(counts.done.sum()), int(counts.failed.sum())
    on_workers = waiting = total = None
    if counted:
        on_workers = sum(row.on_workers or 0 for row in functions)
        waiting = sum(row.waiting or 0 for row in functions)
        total = done + failed + on_workers + waiting
    elif tasks_of_graphs is not None:
        total = max(tasks_of_graphs, done + failed)
    began = float(np.min(counts.began, initial=np.inf))
    left, unknown = _time_left(counts, functions, total, measured) if goes_on else (None, 0)
    silence = measured - counts.last_end
    is_quiet = total is not None and done + failed < total and silence > _quiet_after(functions)
    left = None if is_quiet else left
    threads = [worker.threads for worker in workers if worker.threads is not None]
    busy = [worker.busy for worker in workers if worker.busy is not None]
    return RunState(
        run,
        now,
        began if np.isfinite(began) else None,
        goes_on,
        tuple(functions),
        done,
        failed,
        on_workers,
        waiting,
        total,
        total is not None and not counted,
        sum(row.rate for row in functions),
        None if left is None else max(left - (now - measured), 0.0),
        unknown,
        sum(threads) if threads else None,
        sum(busy) if busy else None,
        tuple(workers),
        tuple(long_tasks),
        silence if is_quiet and goes_on else None,
        closed,
        client_is_gone,
        (*notes, *(() if counted or goes_on is False else (_NO_COUNTS,))),
    )


def _quiet_after(functions: list[FunctionProgress]) -> float:
    """Return the seconds without any end from which the pace before tells no time left."""
    longest = max((row.mean_seconds or 0.0 for row in functions), default=0.0)
    return max(LONG_SECONDS, LONG_TIMES * longest)


def _functions(
    counts: TaskCounts,
    left: dict[str, tuple[int, int]] | None,
    measured: float,
    elsewhere: frozenset[str | None],
) -> list[FunctionProgress]:
    """Return a row for each step and function, in the order in which they began.

    What is left of a function that runs in several steps, or may, is in a row without a step: the
    scheduler counts by function.
    """
    rows = counts.rows
    steps_of = defaultdict(list)
    for step, function in rows:
        steps_of[function].append(step)
    open_rows: dict[tuple[str | None, str], tuple[int, int]] = {}
    for function, pair in (left or {}).items():
        steps = steps_of.get(function, [])
        certain = len(steps) == 1 and steps[0] not in elsewhere
        open_rows[steps[0] if certain else None, function] = pair
    rates = counts.rates(measured)
    means = counts.means()
    found = []
    for number, row in enumerate([*rows, *(row for row in open_rows if row not in set(rows))]):
        ended = number < len(rows)
        done = int(counts.done[number]) if ended else 0
        failed = int(counts.failed[number]) if ended else 0
        on_workers, waiting = open_rows.get(row, (0, 0))
        known = left is not None
        mean = float(means[number]) if ended else np.nan
        found.append(
            FunctionProgress(
                *row,
                done,
                failed,
                on_workers if known else None,
                waiting if known else None,
                done + failed + on_workers + waiting if known else None,
                float(rates[number]) if ended else 0.0,
                mean if np.isfinite(mean) else None,
            )
        )
    return found


def _time_left(
    counts: TaskCounts, functions: list[FunctionProgress], total: int | None, measured: float
) -> tuple[float | None, int]:
    """Estimate the seconds until all tasks of known length are done; count those that are not.

    The work that is left, in seconds of threads by each function's mean, divided by the work that
    was done a second lately: however many threads that took.
    """
    pace = counts.recent_thread_seconds(measured)
    means = {row.function: row.mean_seconds for row in functions if row.mean_seconds is not None}
    runs = int(counts.done.sum() + counts.failed.sum())
    if total is None or not runs or pace <= 0:
        return None, 0
    if all(row.total is None for row in functions):
        return (total - runs) * counts.mean() / pace, 0
    work, unknown = 0.0, 0
    for row in functions:
        left = (row.on_workers or 0) + (row.waiting or 0)
        work += left * means.get(row.function, 0.0)
        unknown += 0 if row.function in means else left
    return (None if unknown and not work else work / pace), unknown


def long_tasks(
    tasks: list[tuple[str, float, OpenTask]], counts: TaskCounts, sent: SentFunctions
) -> list[LongTask]:
    """Return the tasks that run unusually long, the longest first.

    Parameters
    ----------
    tasks
        Workers' names, the time by their clocks, and their tasks under way.
    counts
        Tells the medians.
    sent
        Tells the files of functions that the client sent by value.
    """
    medians: dict[str, float | None] = {}
    found = []
    for worker, now, task in tasks:
        seconds = now - task.since
        if seconds <= LONG_SECONDS:
            continue
        if task.function not in medians:
            medians[task.function] = counts.median_of(task.function)
        median = medians[task.function]
        if median is None or seconds > LONG_TIMES * median:
            found.append(
                LongTask(
                    task.key,
                    task.function,
                    worker,
                    task.state,
                    seconds,
                    median,
                    _line_of(sent.in_frames(task.frames)),
                    task.waits,
                )
            )
    return sorted(found, key=lambda task: -task.seconds)[:_MOST_LONG]


def _line_of(frames: tuple[Any, ...]) -> str | None:
    """Return the user's line of a recorded stack, see `user_line`."""
    known = [frame for frame in frames if isinstance(frame, list | tuple) and len(frame) == 3]
    return user_line(tuple(Frame(str(name), str(file), line) for name, file, line in known))


# --- still_to_come: what a run that goes on had left when its trace was read, and for how long ----


@dataclass(frozen=True)
class StillToCome:
    """What is left of a run that goes on."""

    #: Tasks that the scheduler knows of and that have not ended.
    tasks: int
    #: Seconds until they have, as `RunState.seconds_left` has it; None: nothing tells.
    seconds: float | None
    #: Those of them of functions of which no run has ended: they come on top.
    unknown: int


def still_to_come(trace: Trace) -> StillToCome | None:
    """Return what is left at the end of a trace; None if it has ended, or the scheduler was silent.

    As of a run that is followed (`LiveRun`): what is left of each function by the mean of its runs,
    at the pace of the last 30 s; no time where none has ended for long.
    """
    states, tasks = trace.scheduler_states, trace.tasks
    if trace.recording is not RecordingEnd.GOES_ON or not len(states):
        return None
    done = (tasks["state"] == "memory").to_numpy(dtype=bool)
    ended = np.flatnonzero(done | (tasks["state"] == "erred").to_numpy(dtype=bool))
    functions = tasks["function"].cat
    names, codes = [str(name) for name in functions.categories], functions.codes.to_numpy()[ended]
    begins, seconds = (tasks[name].to_numpy(dtype=float)[ended] for name in ("start", "duration"))
    counts, unfinished = TaskCounts(), Unfinished()
    rows = np.array([counts.number(None, name) for name in names], dtype=np.int64)
    if len(ended):
        counts.add(rows[codes], done[ended], begins, begins + seconds, seconds)
    last = states.iloc[-1]
    told = [(float(last["time"]), last["tasks"])]
    unfinished.take([EndedRuns(names, codes, begins + seconds)], told)
    state = describe(
        trace.run or "",
        trace.end,
        trace.end,
        goes_on=True,
        counts=counts,
        unfinished=unfinished,
        tasks_of_graphs=None,
        workers=[],
        long_tasks=[],
    )
    left = (state.on_workers or 0) + (state.waiting or 0)
    return StillToCome(left, state.seconds_left, state.unknown_tasks) if left else None
