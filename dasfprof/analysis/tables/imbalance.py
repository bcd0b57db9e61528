"""How unevenly work is spread over workers, over tasks and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.degradation import Trends, find_trends, trend_rows
from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.model.stragglers import find_stragglers
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import known_thread_counts, workers_with_tasks
from dasfprof.analysis.tables.columns import INTERVAL, codes_of, flags, origin_columns, text
from dasfprof.analysis.tables.questions import NO_PARTS, InParts, joined_rows, question
from dasfprof.database.columns import Array

By = Literal["function", "step"]


def _of_part(run: Run, by: By = "function") -> GroupSums:
    """Return the total durations in a time window by group, host and worker."""
    workers, tasks = run.named, run.tasks
    of_task, duration = workers.numbers(tasks), tasks["duration"].to_numpy()
    codes, names = groups_by(by, tasks)
    pairs, distinct = pd.factorize(codes * max(len(workers), 1) + of_task)
    named_as, worker = np.divmod(distinct, max(len(workers), 1))
    labels = zip(workers.hosts[worker].tolist(), workers.labels[worker].tolist(), strict=True)
    named = [(names[at], *label) for at, label in zip(named_as.tolist(), labels, strict=True)]
    groups = Groups(pairs, len(distinct))
    return GroupSums.by_name(named, groups, {"duration": duration}, {"duration": duration})


def _table(run: Run, parts: Sequence[GroupSums], *, by: By = "function") -> pd.DataFrame:
    """Return the table of `imbalance`, from the sums of all time windows."""
    sums = GroupSums.merged(parts)
    cells: list[Any] = sums.names
    of_groups = sums.by([cell[0] for cell in cells])
    names: list[Any] = of_groups.names
    workers = run.named
    of_cell = codes_of([cell[1:] for cell in cells], list(workers.places))
    listed = workers_with_tasks(run, workers, of_cell)
    listed = listed[np.argsort(workers.ranks()[listed])]
    count, among = len(names), max(len(listed), 1)
    seconds = np.zeros((count, among))
    rows = codes_of([cell[0] for cell in cells], names)
    seconds[rows, codes_of(of_cell.tolist(), listed.tolist())] = sums.sum("duration")
    threads = known_thread_counts(run, workers)[listed]
    # If the threads of any worker are unknown, each worker counts as one thread.
    load = seconds / (threads if len(listed) and (threads > 0).all() else np.ones(among))
    highest, mean = load.max(axis=1, initial=0.0), load.mean(axis=1)
    busiest = listed[load.argmax(axis=1)] if len(listed) else np.empty(0, dtype=np.int64)
    table = pd.DataFrame(
        {
            by.capitalize(): text(names),
            "Duration (s)": of_groups.sum("duration"),
            "Num Tasks (chunks)": of_groups.rows,
            "Workers": np.full(count, among),
            "Workers with Tasks": (seconds > 0).sum(axis=1),
            "Max/Mean of Workers": ratio(highest, mean),
            "Imbalance (%)": (1 - ratio(mean, highest)) * 100,
            "Lost to Imbalance (s)": highest - mean,
            "Busiest Worker": text(workers.labels[busiest]),
            "Host": text(workers.hosts[busiest]),
            "Max/Mean of Tasks": ratio(of_groups.highest["duration"], of_groups.mean("duration")),
        }
    )
    ranks = np.argsort(np.argsort(np.array(names, dtype=object)))
    order = np.lexsort((ranks, -table["Lost to Imbalance (s)"].to_numpy()))
    return table.take(order).reset_index(drop=True)


@question("Load imbalance between workers", "balance", in_parts=InParts(_of_part, _table))
def imbalance(run: Run, by: By = "function") -> pd.DataFrame:
    """Measure how unequally the work of each function is spread over workers and over tasks.

    Parameters
    ----------
    by
        ``"function"``, or ``"step"`` for the work of each step of the pipeline.

    Returns
    -------
    DataFrame
        One row per function (or step), sorted by lost seconds in descending order:

        - ``Function``, or ``Step``
        - ``Duration (s)``: total of its task runs
        - ``Num Tasks (chunks)``: number of task runs
        - ``Workers``: number of workers in the run
        - ``Workers with Tasks``: number of workers on which it ran
        - ``Max/Mean of Workers``, ``Imbalance (%)`` (1 - mean/max): computed from its seconds per
          thread on each worker, which are 0 for a worker without such a task
        - ``Lost to Imbalance (s)``: mean time for which the workers' threads would wait for the
          busiest worker if there was nothing else to run
        - ``Busiest Worker``, ``Host``
        - ``Max/Mean of Tasks``: of the durations of its task runs

        Ratios are NA for a function that took no time.

    Notes
    -----
    W contains the function's seconds per thread, for each of p workers. The percentage follows
    Sakellariou and Gurd (ICS'97): ``1 - sum(W) / (p max(W))`` is the fraction of the workers' time
    that is lost while the most loaded worker is still busy. ``max(W) - mean(W)`` is this time per
    worker.
    """
    return _table(run, [_of_part(run, by)], by=by)


@question("Stragglers", "balance")
def stragglers(run: Run) -> pd.DataFrame:
    """List the task runs that took much longer than others of their function, and why.

    Returns
    -------
    DataFrame
        One row per straggler, sorted by excess in descending order. A straggler takes more than
        twice the median of its function in its graph layer (of all its task runs if keys are not
        tuples), is at least three median absolute deviations above it, and takes at least 1 % of
        the wall time. Groups of fewer than five task runs have no stragglers.

        - ``Task Key``, ``Function``, ``Host``, ``Worker``, ``Run ID``
        - ``Start (s)``, since the start of the run
        - ``Elapsed (s)``: time on its thread, including unspilling and deserializing, without waits
          for CPU. Only the time of its function if no file records more
        - ``Median (s)`` of its function and layer
        - ``Times Median``, ``Excess (s)``: the elapsed time divided by this median, and the
          difference of both
        - ``Input Size (MB)``, ``Median Input Size (MB)``
        - ``Expected for its Input (s)``: median of task runs with inputs of similar size (the same
          power of two). If there are few of them, the median of all, scaled by input size
        - ``Cause``: the first of these that explains the excess:

          - ``larger input``: it took at most twice the expected time, so it is not slow
          - ``slow worker``: its function takes 1.5 times as long there as elsewhere, which is
            statistically significant
          - ``spill``, ``deserialising``
          - ``worker overhead``: it waited for the worker's event loop or for its thread
          - ``first run on that worker``
          - ``blocked``: it waited without using the CPU
          - ``computed longer``, ``unknown``
    """
    slow, workers = find_stragglers(run), run.named
    tasks = run.tasks.take(slow.rows)
    return pd.DataFrame(
        {
            "Task Key": text(run.keys.texts(tasks["key_id"].to_numpy())),
            "Function": text(tasks["function"].astype(object).to_numpy()),
            "Host": text(workers.hosts[slow.worker]),
            "Worker": text(workers.labels[slow.worker]),
            "Run ID": tasks["run_id"].to_numpy(),
            "Start (s)": run.since_begin(slow.start),
            "Elapsed (s)": slow.seconds,
            "Median (s)": slow.median,
            "Times Median": ratio(slow.seconds, slow.median),
            "Excess (s)": slow.excess,
            "Input Size (MB)": slow.input_size / 1e6,
            "Median Input Size (MB)": slow.median_input / 1e6,
            "Expected for its Input (s)": slow.expected,
            "Cause": text(slow.cause),
            **origin_columns(run, slow.rows, run.tasks),
        }
    )


#: Labels of the quantities that are tested for a trend.
_LABELS = {
    "run": "Run Method Seconds",
    "elapsed": "Elapsed Seconds",
    "cpu": "Process Seconds",
    "input_size": "Input Size",
}


def _rows(run: Run) -> pd.DataFrame:
    return trend_rows(find_attempts(run))


@question(
    "Functions that get slower during the run",
    "reports",
    in_parts=InParts(_rows, lambda _, parts: _degradation_table(find_trends(joined_rows(parts)))),
)
def degradation(run: Run) -> pd.DataFrame:
    """Test whether each function gets slower during the run, by the criteria of ParallelRunStep.

    Returns
    -------
    DataFrame
        One row per function, sorted by its seconds in descending order:

        - ``Function``
        - ``Attempts``: number of successful attempts. Only these count in this table
        - ``Count Falling``: whether fewer and fewer of them start per unit of time
        - ``Run Method Seconds Rising``, ``Elapsed Seconds Rising``, ``Process Seconds Rising``,
          ``Input Size Rising``
        - ``Count Last/First Third``, ``Run Method Seconds Last/First Third`` and so on: the value
          of the last third of its attempts divided by that of the first third
        - ``Verdict``: the conclusion

        A quantity rises if its rank correlation with time is at least 0.6, and its last third is at
        least 1.3 times its first. A count falls if its inverse rises. NA if there are fewer than 12
        attempts, or if no file records the quantity.
    """
    return _degradation_table(find_trends(_rows(run)))


def _degradation_table(trends: Trends) -> pd.DataFrame:
    change = {label: trends.change[name] for name, label in _LABELS.items()}
    rising = {
        f"{label} Rising": flags(trends.rises[name], ~np.isnan(trends.change[name]))
        for name, label in _LABELS.items()
    }
    table = pd.DataFrame(
        {
            "Function": text(trends.functions),
            "Attempts": trends.attempts,
            "Count Falling": flags(trends.count_falls, ~np.isnan(trends.count_change)),
            **rising,
            "Count Last/First Third": trends.count_change,
            **{f"{label} Last/First Third": values for label, values in change.items()},
            "Verdict": text(trends.verdicts),
        }
    )
    return table.take(trends.order).reset_index(drop=True)


#: Maximum number of cells in the table of task balance. A larger table only has rows for seconds in
#: which a worker reported a count.
MAX_CELLS = 50_000_000


@question(
    "Tasks in memory by worker and second",
    "time",
    short="balance",
    overview=7,
    page="balance",
    csv="task_balance",
    in_parts=NO_PARTS,
)
def per_worker_task_balance(run: Run) -> pd.DataFrame:
    """Count the tasks in memory on each worker over time.

    Returns
    -------
    DataFrame
        One row per second: ``Time Interval (seconds from begin)``, counted from the first count in
        the trace, and one column per worker with its number of tasks in memory at the end of that
        second. If a second has no count, the number is the previous one, or 0 before the first
        count. If two hosts have workers with the same label, column names contain the host.
    """
    workers, memory = run.named, run.managed_memory
    worker, time = workers.numbers(memory), memory["time"].to_numpy()
    tasks = memory["tasks"].to_numpy(dtype=float)
    known = np.isfinite(time) & np.isfinite(tasks)
    worker, time, tasks = worker[known], time[known], tasks[known]
    if not len(time):
        return pd.DataFrame({INTERVAL: np.empty(0, dtype=np.int64)})
    begin, last = time.min(), float(_seconds(time.max() - time.min()))
    # A worker that left holds no tasks. If it left in the last second, its last count remains.
    left = run.workers["left"].to_numpy()
    gone = np.flatnonzero((left >= begin) & (_seconds(left - begin) < last))
    gone = gone[np.isin(workers.of_lives[gone], worker)]
    worker = np.append(worker, workers.of_lives[gone])
    time, tasks = np.append(time, left[gone]), np.append(tasks, np.zeros(len(gone)))
    order = np.argsort(time, kind="stable")
    seconds = _seconds(time[order] - begin).astype(np.int64)
    cells = pd.DataFrame({"second": seconds, "worker": worker[order], "tasks": tasks[order]})
    cells = cells.drop_duplicates(["second", "worker"], keep="last")
    counts = cells.pivot(index="second", columns="worker", values="tasks")
    if (last + 1) * counts.shape[1] <= MAX_CELLS:
        counts = counts.reindex(np.arange(int(last) + 1))
    titles = np.array(workers.titles(), dtype=object)
    counts.columns = pd.Index(titles[counts.columns.to_numpy(dtype=np.int64)], dtype=object)
    counts = counts.ffill().fillna(0.0).sort_index(axis=1)
    return counts.reset_index(names=INTERVAL)


def _seconds(time: Array) -> Array:
    """Return times rounded down to full seconds."""
    # Times are first rounded to microseconds, so 128.2 - 127.2 is a full 1.
    return np.floor(np.round(time, 6))
