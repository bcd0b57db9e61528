"""Rules about how tasks use the cores: too many of them, locks, waiting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding, needs_cores
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.host_processes import host_programs
from dasfprof.analysis.model.p2p import p2p_runs
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.stack_samples.sentences import hottest_line
from dasfprof.analysis.wording import (
    Bytes,
    Count,
    Factor,
    Figures,
    Rate,
    Seconds,
    Share,
    Words,
)
from dasfprof.database.columns import Array
from dasfprof.text import excerpt

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
#: Cores from which on another program is named, and all of them are to blame; how many are named.
_NAMED, _BLAMED, _MOST_NAMED = 0.05, 0.5, 3
#: Functions wait if they use the CPU for less of their time; it matters from such a share of the
#: threads' time on.
_WAITING_CPU = 0.3
_WAITING = 0.2
#: Bytes of files a second of waiting, for storage to be what is waited for, and the share of all
#: waiting that has to be on workers with so many.
_IO_RATE = 5e6
_ALL = 0.9


@rule("lock-bound")
def lock_bound(run: RunFigures) -> Iterator[Finding]:
    """Find threads of one process that keep each other waiting: by the GIL, or another lock."""
    worker, beside = run.trace.tasks["worker_id"].to_numpy(), _beside(run)
    using = run.on_cpu * beside >= _USES_CPU
    groups = Groups(np.where(using, worker, -1), len(run.trace.workers))
    seconds, covered = groups.sum(run.working), _covered(run, groups)
    cores = ratio(groups.sum(run.cpu), covered)
    lasted = groups.sum(run.lasted)
    blocked = ratio(seconds - groups.sum(run.cpu), lasted)
    at_a_time = ratio(groups.sum(beside * using), groups.sizes.astype(float))
    with np.errstate(invalid="ignore"):
        found = (at_a_time >= _BESIDE) & (cores <= _CORES_OF_A_LOCK) & (blocked >= _LOCKED)
    lost = float((seconds - groups.sum(run.cpu))[found].sum()) / run.threads
    if not found.any() or lost < 0.05 * run.wall:
        return
    rows = np.flatnonzero(found[worker] & using)
    yield Finding.of(
        _say_lock_bound,
        function=_most(run, rows),
        at_a_time=Factor(at_a_time[found].mean()),
        cores=Factor(cores[found].mean()),
        blocked=Share(blocked[found].mean()),
        tasks=Count(len(rows)),
        workers=Count(found.sum()),
        core_wait=run.waits_for_cores,
        threads=_threads_per_worker(run),
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
    )


def _say_lock_bound(f: Figures) -> Words:
    return (
        f"Threads of one process keep each other waiting: {f.at_a_time} tasks at a time, most of "
        f"{f.function}, use {f.cores} cores.",
        f"{f.blocked} of their time these tasks neither used a core nor waited for one: that is "
        "what Python's global lock (GIL) does to pure Python code, or another lock to any. "
        f"{f.tasks:task} on {f.workers:worker}. {needs_cores(f.core_wait)}"
        'See time_accounting("function").',
        f"Use processes in place of threads: {f.threads} times as many workers with "
        f"threads_per_worker=1; or let {f.function} release the GIL (NumPy, Numba with "
        "nogil=True).",
    )


@rule("cpu-oversubscribed")
def cpu_oversubscribed(run: RunFigures) -> Iterator[Finding]:
    """Find tasks that wait for a core, as more threads want to run than the host has cores."""
    using = run.on_cpu * _beside(run) >= _USES_CPU
    seconds = float(run.lasted[using].sum())
    waited = float(run.core_wait[using].sum())
    lost = waited / run.threads
    if not seconds > 0 or waited < _CORE_WAIT * seconds or lost < 0.05 * run.wall:
        return
    own, process = float(run.cpu[using].sum()), run.process_cpu_seconds
    yield Finding.of(
        _say_cpu_oversubscribed,
        share=Share(waited / seconds),
        waited=Seconds(waited),
        lasted=Seconds(seconds),
        share_of_all=Share(run.share_of(ThreadTime.WAITING_FOR_A_CORE)),
        processes=Seconds(process),
        tasks=Seconds(own),
        own_threads=process > _NATIVE * own + run.wall,
        other_programs=_other_programs(run),
        seconds=lost,
    )


def _say_cpu_oversubscribed(f: Figures) -> Words:
    programs, blamed = _programs_in_words(f.other_programs)
    return (
        f"The hosts have too few cores: tasks that use the CPU wait for one for {f.share} of their "
        "time.",
        f"{f.waited} of these tasks' {f.lasted} were spent in the run queue (all tasks: "
        f"{f.share_of_all} of the threads' time); workers' processes used {f.processes} of CPU "
        f"time, the tasks' own threads {f.tasks}. {programs}See host_processes(), "
        "node_resource_usage() and time_accounting().",
        "The tasks' libraries start threads of their own: set OMP_NUM_THREADS=1, "
        "MKL_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 for the workers."
        if f.own_threads and not blamed
        else f"Move other programs off the host ({blamed}), or run fewer threads: no more than "
        "they leave cores, over all workers of it."
        if blamed
        else "Run fewer threads: no more than the host has cores, over all workers of it"
        + (
            "."
            if f.other_programs is not None
            else "; and look for other programs on the host: whether any ran is not recorded."
        ),
    )


def _other_programs(run: RunFigures) -> Figures | None:
    """Return what other programs used of the host where they used most; None if unknown."""
    found = host_programs(run.trace)
    others = found.others()
    if others is None:
        return None
    host, programs = others
    names = [
        f"{excerpt(name)} of {excerpt(owner)}"
        for name, owner in zip(programs["name"], programs["owner"], strict=True)
    ]
    used = {
        name: Factor(cores)
        for name, cores in zip(names[:_MOST_NAMED], programs["cores"], strict=False)
        if cores >= _NAMED or name == names[0]
    }
    cores, looks = Factor(programs["cores"].sum()), Count(found.looks[host])
    return Figures(host=str(host), cores=cores, looks=looks, programs=used)


def _programs_in_words(others: Figures | None) -> tuple[str, str]:
    """Say what other programs used, and which of them are to blame: empty if none is."""
    if others is None:
        return "", ""
    if others.cores < _NAMED:
        return f"No other program used much of a core of {others.host} ({others.looks:look}). ", ""
    named = ", ".join(f"{program} {cores}" for program, cores in others.programs.items())
    used = f"{others.cores} of the cores of {others.host} ({others.looks:look})"
    blame = ", ".join(others.programs) if others.cores >= _BLAMED else ""
    return f"Other programs used {used}: {named}. ", blame


@rule("io-bound")
def io_bound(run: RunFigures) -> Iterator[Finding]:
    """Find functions that wait while their process reads or writes files."""
    rows, lost = _waiting_rows(run)
    if not len(rows) or not _waits_for_files(run, rows):
        return
    name, nbytes = _most(run, rows), float(run.file_bytes.sum())
    yield Finding.of(
        _say_io_bound,
        function=name,
        on_cpu=_cpu_share(run, name),
        moved=Bytes(nbytes),
        rate=Rate(nbytes / run.wall),
        waiting=Share(run.share(lost * run.threads)),
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
        at_most="medium",
    )


def _say_io_bound(f: Figures) -> Words:
    return (
        f"Tasks wait for storage: {f.function} uses the CPU for {f.on_cpu} of its time, while "
        f"{f.moved} are read and written.",
        f"That is {f.rate} over the run; {f.waiting} of the threads' time is spent waiting. See "
        "processes_resource_usage() and node_disk_usage().",
        f"Let {f.function} read less: only the columns and rows that are needed, compressed "
        "formats in larger pieces (Parquet, Zarr), from local or faster disks; or run more threads "
        "a worker.",
    )


@rule("blocked-tasks")
def blocked_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find functions that sleep, or wait for something that this run does not show."""
    rows, lost = _waiting_rows(run)
    if not len(rows) or _waits_for_files(run, rows):
        return
    name, threads = _most(run, rows), _threads_per_worker(run)
    on_cpu = _cpu_share(run, name)
    more = min(max(round(threads / max(on_cpu, 0.1)), 2 * threads), 10 * threads)
    yield Finding.of(
        _say_blocked_tasks,
        function=name,
        on_cpu=on_cpu,
        waiting=Share(run.share(lost * run.threads)),
        tasks=Count(len(rows)),
        lasted=Seconds(run.working[rows].sum()),
        hottest=hottest_line(run.trace, name),
        actors=len(run.trace.actor_calls) > 0,
        threads=threads,
        more_threads=Count(more),
        seconds=run.saved(lost, running=_without_waiting(run, rows)),
        at_most="medium",
    )


def _say_blocked_tasks(f: Figures) -> Words:
    called = "calls of actors, each of which answers one at a time; " if f.actors else ""
    return (
        f"Tasks sleep or wait: {f.function} uses the CPU for {f.on_cpu} of its time, and "
        f"{f.waiting} of the threads' time is spent so.",
        f"{f.tasks:task}, {f.lasted} in all; waits for a core are left out, and not all of their "
        f"workers read or wrote files meanwhile. {f.hottest}See "
        'time_accounting("function"), hot_lines() and processed_tasks("function").',
        f"Look for what {f.function} waits for: {called}sleeps, locks, a service, the network. If "
        "it has to wait, let more of it run side by side: "
        f"threads_per_worker={int(f.more_threads)} in place of {f.threads}.",
    )


def _waiting_rows(run: RunFigures) -> tuple[Array, float]:
    """Return the task runs of functions that mostly wait, and what that costs; none if little."""
    functions = run.functions
    seconds, cpu = functions.sum(run.working), functions.sum(run.cpu)
    known = functions.known(run.task_column("cpu")) > 0
    with np.errstate(invalid="ignore"):
        waiting = known & (ratio(cpu, seconds) < _WAITING_CPU)
    # Tasks of P2P shuffles wait for each other's workers, whatever else is read and written.
    waiting[np.unique(functions.codes[p2p_runs(run.trace)])] = False
    lost = float((seconds - cpu)[waiting].sum()) / run.threads
    if run.uses_gpus or not waiting.any() or lost < _WAITING * run.wall:
        return np.empty(0, dtype=np.int64), 0.0
    return np.flatnonzero(waiting[functions.codes]), lost


def _waits_for_files(run: RunFigures, rows: Array) -> bool:
    """Return whether the processes of all workers on which task runs wait read or write enough.

    One that does alone may as well load a library, while all of them wait as long.
    """
    worker = run.trace.tasks["worker_id"].to_numpy()[rows]
    waits = np.bincount(
        worker, weights=run.working[rows] - run.cpu[rows], minlength=len(run.file_bytes)
    )
    enough = run.file_bytes >= _IO_RATE * waits
    return bool(waits[enough].sum() >= _ALL * waits.sum())


def _without_waiting(run: RunFigures, rows: Array) -> Array:
    """Return the durations of all task runs if these only computed, and waited for a core."""
    return run.with_durations(rows, run.cpu[rows] + run.core_wait[rows])


def _beside(run: RunFigures) -> Array:
    """Return for each task run how many runs its worker has at a time, on average."""
    worker = run.trace.tasks["worker_id"].to_numpy()
    groups = Groups(worker, len(run.trace.workers))
    seconds = groups.sum(run.lasted)
    beside: Array = np.nan_to_num(ratio(seconds, _covered(run, groups)), nan=1.0)[worker]
    return beside


def _covered(run: RunFigures, groups: Groups) -> Array:
    """Return for how long at least one task run of each group lasts."""
    start = run.slots.times.start[: len(groups.codes)]
    stop = start + run.lasted
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


def _cpu_share(run: RunFigures, name: str) -> Share:
    """Return the share of a function's time, less waits for a core, for which it used the CPU."""
    rows = np.flatnonzero((run.function_names == name)[run.functions.codes])
    seconds = float(run.working[rows].sum())
    return Share(run.cpu[rows].sum() / seconds if seconds > 0 else 0.0)


def _threads_per_worker(run: RunFigures) -> Count:
    return Count(np.median(run.accounts.lives.threads))
