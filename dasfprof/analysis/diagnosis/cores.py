"""Rules about how tasks use the cores: too many of them, locks, waiting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, percent, size, times
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.database.columns import Array

#: Tasks use the CPU if they do for such a share of their time, by the number of them at a time.
_USES_CPU = 0.5
#: The share of their time for which tasks that use the CPU wait for something else than a core,
_LOCKED = 0.12
#: with so many of them at a time in a process, on average,
_BESIDE = 1.5
#: which use so many cores at most, if one lock keeps them apart.
_CORES_OF_A_LOCK = 1.3
#: CPU seconds of processes by those of their tasks, if libraries have threads of their own.
_NATIVE = 1.5
#: The share of the durations for which tasks wait for a core.
_CORE_WAIT = 0.2
#: Functions wait if they use the CPU for less of their time; it matters from such a share of the
#: threads' time on.
_WAITING_CPU = 0.3
_WAITING = 0.2
#: Bytes of files a second of waiting, for storage to be what is waited for.
_IO_RATE = 5e6


@rule(
    "lock-bound",
    symptoms=(
        "blocked-tasks",
        "dominating-function",
        "cpu-oversubscribed",
    ),
)
def lock_bound(run: RunFigures) -> Iterator[Finding]:
    """Find threads of one process that keep each other waiting: by the GIL, or another lock."""
    worker, beside = run.trace.tasks["worker_id"].to_numpy(), _beside(run)
    using = run.on_cpu * beside >= _USES_CPU
    groups = Groups(np.where(using, worker, -1), len(run.trace.workers))
    seconds, covered = groups.sum(run.working), _covered(run, groups)
    cores = ratio(groups.sum(run.cpu), covered)
    lasted = groups.sum(run.trace.tasks["duration"].to_numpy())
    blocked = ratio(seconds - groups.sum(run.cpu), lasted)
    at_a_time = ratio(groups.sum(beside * using), groups.sizes.astype(float))
    with np.errstate(invalid="ignore"):
        found = (at_a_time >= _BESIDE) & (cores <= _CORES_OF_A_LOCK) & (blocked >= _LOCKED)
    lost = float((seconds - groups.sum(run.cpu))[found].sum()) / run.threads
    if not found.any() or lost < 0.05 * run.wall:
        return
    rows = np.flatnonzero(found[worker] & using)
    name, threads = _most(run, rows), _threads_per_worker(run)
    yield Finding(
        f"Threads of one process keep each other waiting: {times(float(at_a_time[found].mean()))} "
        f"tasks at a time, most of {name}, use {times(float(cores[found].mean()))} cores.",
        f"{percent(float(blocked[found].mean()))} of their time these tasks neither used a core "
        "nor waited for one: that is what Python's global lock (GIL) does to pure Python code, or "
        f"another lock to any. {count(len(rows), 'task')} on {count(int(found.sum()), 'worker')}. "
        'See time_accounting("function").',
        f"Use processes in place of threads: {threads} times as many workers with "
        f"threads_per_worker=1; or let {name} release the GIL (NumPy, Numba with nogil=True).",
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
        function=name,
    )


@rule(
    "cpu-oversubscribed",
    symptoms=(
        "tasks-too-small",
        "scheduler-bound",
        "dominating-function",
        "straggling-tasks",
        "degrading-functions",
    ),
)
def cpu_oversubscribed(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for a core, as more threads want to run than the host has cores."""
    using = run.on_cpu * _beside(run) >= _USES_CPU
    seconds = float(run.trace.tasks["duration"].to_numpy()[using].sum())
    waited = float(run.core_wait[using].sum())
    lost = waited / run.threads
    if not seconds > 0 or waited < _CORE_WAIT * seconds or lost < 0.05 * run.wall:
        return
    own, process = float(run.cpu[using].sum()), run.process_cpu_seconds
    yield Finding(
        f"The hosts have too few cores: tasks wait for one for {percent(waited / seconds)} of "
        "their time.",
        f"{duration(waited)} of {duration(seconds)} were spent in the run queue; workers' "
        f"processes used {duration(process)} of CPU time, the tasks' own threads "
        f"{duration(own)}. See node_resource_usage() and time_accounting().",
        "The tasks' libraries start threads of their own: set OMP_NUM_THREADS=1, "
        "MKL_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 for the workers."
        if process > _NATIVE * own + run.wall
        else "Run fewer threads: no more than the host has cores, over all workers of it; and move "
        "other programs off the host.",
        seconds=lost,
    )


@rule("io-bound")
def io_bound(run: RunFigures) -> Iterator[Finding]:
    """Find functions that wait while their process reads or writes files."""
    rows, lost = _waiting_rows(run)
    nbytes = run.file_bytes
    if not len(rows) or nbytes < _IO_RATE * lost * run.threads:
        return
    name = _most(run, rows)
    yield Finding(
        f"Tasks wait for storage: {name} uses the CPU for {percent(_cpu_share(run, rows))} of its "
        f"time, while {size(nbytes)} are read and written.",
        f"That is {size(nbytes / run.wall)}/s over the run; {percent(lost / run.wall)} of the "
        "threads' time is spent waiting. See processes_resource_usage() and node_disk_usage().",
        f"Let {name} read less: only the columns and rows that are needed, compressed formats in "
        "larger pieces (Parquet, Zarr), from local or faster disks; or run more threads a worker.",
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
        at_most="medium",
        function=name,
    )


@rule("blocked-tasks")
def blocked_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find functions that sleep, or wait for something that this run does not show."""
    rows, lost = _waiting_rows(run)
    if not len(rows) or run.file_bytes >= _IO_RATE * lost * run.threads:
        return
    name, threads = _most(run, rows), _threads_per_worker(run)
    idle = 1 - _cpu_share(run, rows)
    more = min(max(round(threads / max(1 - idle, 0.1)), 2 * threads), 10 * threads)
    yield Finding(
        f"Tasks sleep or wait: {name} uses the CPU for {percent(1 - idle)} of its time, and "
        f"{percent(lost / run.wall)} of the threads' time is spent so.",
        f"{count(len(rows), 'task')}, {duration(float(run.working[rows].sum()))} in all; waits for "
        "a core are left out, and files were hardly read. See "
        'time_accounting("function") and processed_tasks("function").',
        f"Look for what {name} waits for: sleeps, locks, a service, the network. If it has to "
        f"wait, let more of it run side by side: threads_per_worker={more} in place of {threads}.",
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
        at_most="medium",
        function=name,
    )


def _waiting_rows(run: RunFigures) -> tuple[Array, float]:
    """Return the task runs of functions that mostly wait, and what that costs; none if little."""
    functions = run.functions
    seconds, cpu = functions.sum(run.working), functions.sum(run.cpu)
    known = functions.known(run.task_column("cpu")) > 0
    with np.errstate(invalid="ignore"):
        waiting = known & (ratio(cpu, seconds) < _WAITING_CPU)
    lost = float((seconds - cpu)[waiting].sum()) / run.threads
    if run.uses_gpus or not waiting.any() or lost < _WAITING * run.wall:
        return np.empty(0, dtype=np.int64), 0.0
    return np.flatnonzero(waiting[functions.codes]), lost


def _without_waiting(run: RunFigures, rows: Array) -> Array:
    """Return the durations of all task runs if these only computed, and waited for a core."""
    return run.with_durations(rows, run.cpu[rows] + run.core_wait[rows])


def _beside(run: RunFigures) -> Array:
    """Return for each task run how many runs its worker has at a time, on average."""
    worker = run.trace.tasks["worker_id"].to_numpy()
    groups = Groups(worker, len(run.trace.workers))
    seconds = groups.sum(run.trace.tasks["duration"].to_numpy())
    beside: Array = np.nan_to_num(ratio(seconds, _covered(run, groups)), nan=1.0)[worker]
    return beside


def _covered(run: RunFigures, groups: Groups) -> Array:
    """Return for how long at least one task run of each group lasts."""
    times_ = run.slots.times
    start, stop = times_.start[: len(groups.codes)], times_.stop[: len(groups.codes)]
    rows = np.flatnonzero(groups.codes >= 0)
    order = rows[np.lexsort((start[rows], groups.codes[rows]))]
    codes = groups.codes[order]
    # Each group's times behind those of the groups before it, so that one running maximum serves.
    span = float(stop.max(initial=0.0)) + 1.0
    latest = np.maximum.accumulate(stop[order] + codes * span)
    before = np.append(-np.inf, latest[:-1])
    fresh = np.maximum(latest - np.maximum(start[order] + codes * span, before), 0.0)
    covered: Array = np.bincount(codes, weights=fresh, minlength=groups.count)
    return covered


def _most(run: RunFigures, rows: Array) -> str:
    seconds = np.bincount(run.functions.codes[rows], weights=run.working[rows])
    return str(run.function_names[int(seconds.argmax())])


def _cpu_share(run: RunFigures, rows: Array) -> float:
    seconds = float(run.working[rows].sum())
    return float(run.cpu[rows].sum()) / seconds if seconds > 0 else 0.0


def _threads_per_worker(run: RunFigures) -> int:
    return int(np.median(run.accounts.lives.threads))
