"""What follows from running totals: the time left, the tasks that run unusually long."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from dasfprof.analysis.live.counts import EndedRuns, TaskCounts, Unfinished
from dasfprof.analysis.live.open_tasks import OpenTask
from dasfprof.analysis.live.state import FunctionProgress, LongTask, RunState, WorkerState
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.sent_functions import SentFunctions
from dasfprof.analysis.trace.under_way import RecordingEnd
from dasfprof.analysis.under_way.state import Frame, user_line

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
    rates, _ = counts.rates(measured)
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
