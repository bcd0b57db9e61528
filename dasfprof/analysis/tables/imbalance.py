"""How unequally work is spread: over workers, over tasks, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.attempts import find_attempts
from dasfprof.analysis.model.degradation import Trends, find_trends, trend_rows
from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.model.stragglers import find_stragglers
from dasfprof.analysis.numeric.groups import Groups, GroupSums, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.workers import known_thread_counts, workers_with_tasks
from dasfprof.analysis.tables.columns import INTERVAL, flags, origin_columns, text
from dasfprof.analysis.tables.questions import NO_PARTS, InParts, joined_rows, question
from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.database.columns import Array

By = Literal["function", "step"]


def _of_part(run: Run, by: By = "function") -> tuple[GroupSums, pd.DataFrame]:
    """Sum up durations by function (or step), host and worker; return each too, in 5 bytes."""
    workers, tasks = run.named, run.tasks
    of_task, duration = workers.numbers(tasks), tasks["duration"].to_numpy()
    if by == "step":
        codes, names = step_groups(tasks)
    else:
        function = tasks["function"].cat
        codes, names = function.codes.to_numpy(dtype=np.int64), list(function.categories)
    pairs, distinct = pd.factorize(codes.astype(np.int64) * max(len(workers), 1) + of_task)
    named_as, worker = np.divmod(distinct, max(len(workers), 1))
    labels = zip(workers.hosts[worker].tolist(), workers.labels[worker].tolist(), strict=True)
    named = [(names[at], *label) for at, label in zip(named_as.tolist(), labels, strict=True)]
    groups = Groups(pairs, len(distinct))
    sums = GroupSums.of(named, groups, {"duration": duration}, {"duration": duration})
    group = make_categorical(codes, names)
    return sums, pd.DataFrame({"group": group, "duration": duration.astype(np.float32)})


def _table(
    run: Run, parts: Sequence[tuple[GroupSums, pd.DataFrame]], *, by: By = "function"
) -> pd.DataFrame:
    """Make the table of what all parts tell."""
    sums = GroupSums.merged([sums for sums, _ in parts])
    cells: list[Any] = sums.names
    of_groups = sums.by([cell[0] for cell in cells])
    names: list[Any] = of_groups.names
    workers = run.named
    of_cell = np.array([workers.places[cell[1:]] for cell in cells], dtype=np.int64)
    listed = workers_with_tasks(run, workers, of_cell)
    listed = listed[np.argsort(workers.ranks()[listed])]
    count, among = len(names), max(len(listed), 1)
    place = {number: at for at, number in enumerate(listed.tolist())}
    row = {name: at for at, name in enumerate(names)}
    seconds = np.zeros((count, among))
    seconds[[row[cell[0]] for cell in cells], [place[number] for number in of_cell.tolist()]] = (
        sums.sum("duration")
    )
    load = seconds / _weights(known_thread_counts(run, workers)[listed], among)
    of_loads = Groups(np.repeat(np.arange(count), among), count)
    tasks = joined_rows([rows for _, rows in parts])
    of_names = pd.Index(names, dtype=object, tupleize_cols=False)
    places = of_names.get_indexer(tasks["group"].cat.categories)
    of_tasks = Groups(places[tasks["group"].cat.codes.to_numpy()], count)
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
            "Gini of Workers": of_loads.gini(load.ravel()),
            "Lost to Imbalance (s)": highest - mean,
            "Busiest Worker": text(workers.labels[busiest]),
            "Host": text(workers.hosts[busiest]),
            "Max/Mean of Tasks": ratio(of_groups.highest["duration"], of_groups.mean("duration")),
            "Gini of Tasks": of_tasks.gini(tasks["duration"].to_numpy()),
        }
    )
    ranks = np.argsort(np.argsort(np.array(names, dtype=object)))
    order = np.lexsort((ranks, -table["Lost to Imbalance (s)"].to_numpy()))
    return table.take(order).reset_index(drop=True)


@question(
    "How unequally work was spread over workers", "balance", in_parts=InParts(_of_part, _table)
)
def imbalance(run: Run, by: By = "function") -> pd.DataFrame:
    """Measure how unequally each function's work is spread over workers, and over its tasks.

    Parameters
    ----------
    by
        ``"function"``; or ``"step"``, for the work of each step of the pipeline.

    Returns
    -------
    DataFrame
        A row a function (or step), the most lost seconds first:

        - ``Function`` (or ``Step``), ``Duration (s)`` (the sum of its task runs), ``Num Tasks
          (chunks)``, ``Workers`` (of the run), ``Workers with Tasks`` (of the function)
        - ``Max/Mean of Workers``, ``Imbalance (%)`` (1 - mean/max), ``Gini of Workers``: of
          the seconds a thread on each worker; those without a task count as 0
        - ``Lost to Imbalance (s)``: how long the workers' threads would wait, on average, for
          the busiest worker, if nothing else was there to run
        - ``Busiest Worker``, ``Host``
        - ``Max/Mean of Tasks``, ``Gini of Tasks``: of the durations of its task runs

        Ratios are NA for a function that took no time.

    Notes
    -----
    With W the seconds of one on each of p workers, by thread: the percentage is that of
    Sakellariou and Gurd (ICS'97), ``1 - sum(W) / (p max(W))``, the share of the p workers' time
    that is lost while the most loaded one still works; ``max(W) - mean(W)`` is that time for each.
    """
    return _table(run, [_of_part(run, by)], by=by)


def _weights(of_workers: Array, count: int) -> Array:
    """Return each worker's threads; where those of one are unknown, all count alike."""
    known = len(of_workers) == count and np.isfinite(of_workers).all() and (of_workers > 0).all()
    return of_workers if known else np.ones(count)


@question("Tasks that took far longer than others of their function", "balance")
def stragglers(run: Run) -> pd.DataFrame:
    """List the task runs that took far longer than others of their function, and why.

    Returns
    -------
    DataFrame
        A row a straggler, the largest excess first. It takes more than twice the median of
        its function in its layer of the graph (that of all its runs, where keys are no
        tuples), is three median absolute deviations above it, and takes 1 % of the run's wall
        time at least; there are five such runs or more.

        - ``Task Key``, ``Function``, ``Host``, ``Worker``, ``Run ID``, ``Start (s)`` (from
          the trace's begin)
        - ``Elapsed (s)``: of its thread, with unspilling and deserialising, without waits for a
          core; where no file tells, of its function alone
        - ``Median (s)`` (of its function and layer), ``Times Median``, ``Excess (s)``
        - ``Input Size (MB)``, ``Median Input Size (MB)``
        - ``Expected for its Input (s)``: the median of runs with inputs of like size (the
          same power of two), or of all, grown as the input is, where there are few
        - ``Cause``, the first of these that explains it: ``larger input`` (no more than twice
          what is expected for it, so that it is not slow), ``slow host``, ``slow worker``
          (they take 1.5 times as long as the others, beyond chance), ``spill``,
          ``deserialising``, ``worker overhead`` (it waited for the worker's event loop or for
          its thread), ``first run on that worker``, ``skew`` (the function's durations differ so
          much anyway), ``blocked`` (it waited without using the CPU), ``computed longer``,
          ``unknown``
    """
    found, workers = find_stragglers(run), run.named
    tasks = run.tasks.take(found.rows)
    return pd.DataFrame(
        {
            "Task Key": text(run.keys.texts(tasks["key_id"].to_numpy())),
            "Function": text(tasks["function"].astype(object).to_numpy()),
            "Host": text(workers.hosts[found.worker]),
            "Worker": text(workers.labels[found.worker]),
            "Run ID": tasks["run_id"].to_numpy(),
            "Start (s)": run.since_begin(found.start),
            "Elapsed (s)": found.seconds,
            "Median (s)": found.median,
            "Times Median": ratio(found.seconds, found.median),
            "Excess (s)": found.excess,
            "Input Size (MB)": found.input_size / 1e6,
            "Median Input Size (MB)": found.median_input / 1e6,
            "Expected for its Input (s)": found.expected,
            "Cause": text(found.cause),
            **origin_columns(run, found.rows),
        }
    )


#: The labels of what is compared with time.
_LABELS = {
    "run": "Run Method Seconds",
    "elapsed": "Elapsed Seconds",
    "cpu": "Process Seconds",
    "input_size": "Input Size",
}


def _rows(run: Run) -> pd.DataFrame:
    return trend_rows(find_attempts(run))


@question(
    "Functions that get slower as the run goes on",
    "reports",
    in_parts=InParts(_rows, lambda _, parts: _degradation_table(find_trends(joined_rows(parts)))),
)
def degradation(run: Run) -> pd.DataFrame:
    """Test whether each function gets slower as the run goes on, by the steps of the guide.

    Returns
    -------
    DataFrame
        A row a function, the most seconds in it first:

        - ``Function``, ``Attempts`` (those that succeeded; no others count here)
        - ``Count Falling``: fewer of them start in equal times
        - ``Run Method Seconds Rising``, ``Elapsed Seconds Rising``, ``Process Seconds
          Rising``, ``Input Size Rising``
        - ``Count Last/First Third``, ``Run Method Seconds Last/First Third`` and so on: the
          last third of its attempts by the first
        - ``Verdict``: what follows, in words

        A quantity rises if its rank correlation with time is 0.6 at least and its last third
        1.3 times its first; a number falls by the same measure. NA stands for fewer than 12
        attempts, or where no file tells.
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


#: In a longer run, or with more workers, only the seconds in which something was counted are
#: listed.
MAX_CELLS = 50_000_000


@question(
    "Tasks in memory on each worker, second by second",
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
        A row a second: ``Time Interval (seconds from begin)``, from the first count of the
        trace, and a column a worker with its number of tasks in memory at the end of that
        second, as last counted; 0 before its first count. Where two hosts have workers of
        one label, the columns are called by host and label.
    """
    workers, memory = run.named, run.managed_memory
    worker, time = workers.numbers(memory), memory["time"].to_numpy()
    tasks = memory["tasks"].to_numpy(dtype=float)
    known = np.isfinite(time) & np.isfinite(tasks)
    if not known.all():
        worker, time, tasks = worker[known], time[known], tasks[known]
    if not len(time):
        return pd.DataFrame({INTERVAL: np.empty(0, dtype=np.int64)})
    begin, last = time.min(), float(_seconds(time.max() - time.min()))
    columns = np.flatnonzero(np.bincount(worker))
    # A worker that left holds nothing. What all held as the run ended, and they left, is kept.
    left = run.workers["left"].to_numpy()
    gone = np.flatnonzero((left >= begin) & (_seconds(left - begin) < last))
    gone = gone[np.isin(workers.of_lives[gone], columns)]
    if len(gone):
        worker = np.concatenate([worker, workers.of_lives[gone]])
        time, tasks = np.concatenate([time, left[gone]]), np.append(tasks, np.zeros(len(gone)))
    every = (last + 1) * len(columns) <= MAX_CELLS
    listed = np.arange(int(last) + 1) if every else np.unique(_seconds(time - begin))
    counts = np.full((len(listed), len(columns)), np.nan)
    place = np.zeros(len(workers), dtype=np.int64)
    place[columns] = np.arange(len(columns))
    order = np.argsort(time, kind="stable")
    row = _seconds(time[order] - begin)
    row = row.astype(np.int64) if every else np.searchsorted(listed, row)
    # Of several counts in one second the last assignment stays: that of the latest.
    counts[row, place[worker[order]]] = tasks[order]
    titles = workers.titles()
    table = pd.DataFrame(counts, columns=pd.Index([titles[at] for at in columns], dtype=object))
    table = table.ffill().fillna(0.0).sort_index(axis=1)
    table.insert(0, INTERVAL, listed.astype(np.int64))
    return table


def _seconds(time: Array) -> Array:
    """Count whole seconds; clocks tell microseconds, so 128.2 - 127.2 is one."""
    return np.floor(np.round(time, 6))
