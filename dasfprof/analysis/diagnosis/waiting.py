"""Rules about tasks that wait: for files, a lock of their process, or what nothing shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.cores import (
    cpu_share,
    most_of,
    threads_per_worker,
    without_waiting,
)
from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.attempts import WORKER_CLOSED, WORKER_LOST
from dasfprof.analysis.model.links import find_turn
from dasfprof.analysis.model.processes import other_threads_cpu
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.stack_samples.places import (
    CLUSTER_LOCK,
    LOCK,
    NETWORK,
    OWN_POOL,
    PROCESS_LOCK,
    SLEEP,
    hottest_line,
    waits_of,
)
from dasfprof.analysis.wording import Advice, Bytes, Count, Figures, Rate, Seconds, Share, Words
from dasfprof.database.columns import Array

#: Functions wait if they use the CPU for less of their time; it matters from such a share of the
#: threads' time on.
_WAITING_CPU = 0.3
_WAITING = 0.2
#: Bytes of files a second of waiting, for storage to be what is waited for, and the share of all
#: waiting that has to be on workers with so many.
_IO_RATE = 5e6
_ALL = 0.9
#: The share of a function's time in which its samples stand in a lock, and of wall time lost so.
_LOCKED, _LOCK_COSTS = 0.2, 0.05
#: Mean utilisation in percent from which tasks may be waiting for their GPU.
_GPU_BUSY = 20.0
#: How many functions are looked at for that: those that wait longest.
_MOST_LOCKED = 3
#: The part of its waiting that samples have to show as a sleep, or the network.
_SHOWN = 0.5
#: CPU seconds of threads beside those of a function's tasks, by the seconds for which they wait.
_OTHER_THREADS = 0.3
#: Task runs that are ready and have no thread, by the number of threads: more could go on.
_BACKLOG = 1.0
#: The share of a function's attempts that raise an error: what it calls may turn them down.
_FAILED = 0.05
_ONE_OF_EACH = "A lock of the process, or something else of which each has one,"


@rule("process-lock")
def process_lock(run: RunFigures) -> Iterator[Finding]:
    """Find functions of which one task at a time runs in a process, as the others wait for a lock.

    Samples show them in the lock; or in each of several processes they end one after the other,
    evenly, whatever those of other processes do.
    """
    if not len(run.trace.tasks) or threads_per_worker(run) < 2:
        return
    waited = run.functions.sum(run.working - run.cpu)
    for code in np.argsort(-waited, kind="stable")[:_MOST_LOCKED].tolist():
        name = str(run.function_names[code])
        rows = run.rows_of(name)
        in_lock = waits_of(run.trace, name).get(PROCESS_LOCK, 0.0)
        sampled = in_lock >= _LOCKED
        if not sampled:
            in_lock = _turns(run, rows)[1] / max(float(run.working[rows].sum()), 1e-9)
        if in_lock < _LOCKED:
            continue
        lost = in_lock * run.working[rows]
        if float(lost.sum()) / run.threads < _LOCK_COSTS * run.wall:
            continue
        left = run.working[rows] - lost + run.core_wait[rows]
        gain = run.saved(float("nan"), running=run.with_durations(rows, left))
        yield Finding.of(
            _say_process_lock,
            function=name,
            in_lock=Share(in_lock),
            sampled=sampled,
            tasks=Count(len(rows)),
            lasted=Seconds(run.working[rows].sum()),
            hottest=hottest_line(run.trace, name),
            threads=threads_per_worker(run),
            # Processes run side by side no faster than the cores do.
            seconds=float(np.minimum(gain, run.wall - _least_wall(run))),
            at_least="medium",
        )


def _say_process_lock(f: Figures) -> Words:
    shown = (
        f"Samples of its tasks stand in the lock's acquire for {f.in_lock} of their time."
        if f.sampled
        else "In each process its tasks end one after the other, at even distances, and the first "
        "of those that begin together last one, two, three, ... such distances."
    )
    return (
        f"{'One lock of the process' if f.sampled else _ONE_OF_EACH} keeps its threads apart: "
        f"tasks of {f.function} wait for it for {f.in_lock} of their time.",
        f"{shown} {f.tasks:task}, {f.lasted} in all. {f.hottest}See hot_lines() and "
        'time_accounting("function").',
        f"Use processes in place of threads, as each has a lock of its own: {f.threads} times as "
        "many workers with threads_per_worker=1. More threads in a process wait for the same lock.",
    )


def _least_wall(run: RunFigures) -> float:
    """Return for how long all cores compute what tasks and waits for locks leave to be computed."""
    cores = sum(run.trace.surroundings.cores.values())
    return float(run.cpu.sum()) / cores if cores else 0.0


@rule("io-bound")
def io_bound(run: RunFigures) -> Iterator[Finding]:
    """Find functions that wait in calls of a storage, or while their process moves files."""
    rows, lost = _waiting_rows(run)
    if not len(rows) or not _waits_for_storage(run, rows) or _turn_of_most(run, rows) is not None:
        return
    in_calls = _waits_in_calls(run, rows)
    name = most_of(run, rows[run.storage[rows] > 0] if in_calls else rows)
    nbytes = float(run.file_bytes.sum())
    yield Finding.of(
        _say_io_bound,
        function=name,
        on_cpu=cpu_share(run, name),
        in_storage=_in_storage(run, name) if in_calls else None,
        failed=_share_failed(run, name),
        moved=Bytes(nbytes),
        rate=Rate(nbytes / run.wall),
        waiting=Share(run.share(lost * run.threads)),
        seconds=run.saved(lost, running=without_waiting(run, rows)),
        at_most="medium",
    )


def _say_io_bound(f: Figures) -> Words:
    if f.in_storage is not None:
        cause = f"and waits in calls of fsspec for {f.in_storage} of it."
        more = "Which storage, how many calls and bytes: see storage()."
    else:
        cause = f"while {f.moved} are read and written."
        more = f"That is {f.rate} over the run: see processes_resource_usage(), node_disk_usage()."
    return (
        f"Tasks wait for storage: {f.function} uses the CPU for {f.on_cpu} of its time, {cause}",
        f"{f.waiting} of the threads' time is spent waiting. {more}",
        [
            f"Let {f.function} read less: only the columns and rows that are needed, compressed "
            "formats in larger pieces (Parquet, Zarr), from local or faster disks.",
            Advice("more-threads", "Or run more threads a worker.")
            if f.failed is None
            else _turned_down(f.failed),
        ],
    )


@rule("waits-in-turn")
def waits_in_turn(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose tasks wait for something that serves one of them at a time."""
    rows, lost = _waiting_rows(run)
    turn = _turn_of_most(run, rows)
    if turn is None:
        return
    name, own = most_of(run, rows), _runs_of_most(run, rows)
    yield Finding.of(
        _say_waits_in_turn,
        function=name,
        turn=Seconds(turn),
        waiting=Share(run.share(lost * run.threads)),
        tasks=Count(len(own)),
        lasted=Seconds(run.working[own].sum()),
        workers=Count(len(np.unique(run.trace.tasks["worker_id"].to_numpy()[own]))),
        hottest=hottest_line(run.trace, name),
        severity="medium",
    )


def _say_waits_in_turn(f: Figures) -> Words:
    return (
        f"Tasks wait in turn: {f.function} is served one at a time, every {f.turn}, however many "
        f"there are; {f.waiting} of the threads' time is spent so.",
        f"{f.tasks:task} on {f.workers:worker}, {f.lasted} in all: they end at even distances, "
        f"and last the longer, the more there are at once. {f.hottest}See hot_lines() and "
        "processed_tasks().",
        f"Look for what {f.function} waits for: a lock, a file, a connection, a service. More "
        "threads or workers wait for the same: make what it does for one task cheaper, or have "
        "more than one of it"
        + (
            "; if it is a lock of the process, more processes of one thread have one each."
            if f.workers == 1
            else "."
        ),
    )


def _turn_of_most(run: RunFigures, rows: Array) -> float | None:
    return _turns(run, _runs_of_most(run, rows))[0] if len(rows) else None


def _runs_of_most(run: RunFigures, rows: Array) -> Array:
    """Return those of some task runs that are of the function with most of their seconds."""
    return np.intersect1d(rows, run.rows_of(most_of(run, rows)))


@rule("blocked-tasks")
def blocked_tasks(run: RunFigures) -> Iterator[Finding]:
    """Find functions that sleep, or wait for something that this run does not show."""
    rows, lost = _waiting_rows(run)
    if not len(rows) or _waits_for_storage(run, rows) or _turn_of_most(run, rows) is not None:
        return
    name, threads = most_of(run, rows), threads_per_worker(run)
    own = _runs_of_most(run, rows)
    waits, on_cpu = waits_of(run.trace, name), cpu_share(run, name)
    others = other_threads_cpu(run.trace).get(name, 0.0)
    pools = others if others >= _OTHER_THREADS * (run.working - run.cpu)[own].sum() else None
    shown = max(waits.get(SLEEP, 0.0), waits.get(NETWORK, 0.0)) >= _SHOWN * sum(waits.values())
    more = min(max(round(threads / max(on_cpu, 0.1)), 2 * threads), 10 * threads)
    in_pool = waits.get(OWN_POOL, 0.0) if waits.get(OWN_POOL, 0.0) >= _LOCKED else None
    failed = _share_failed(run, name)
    advised = bool(waits) and shown and pools is None and in_pool is None and _backlog(run, own)
    advised = advised and failed is None
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
        waits={what: Share(share) for what, share in waits.items()},
        other_threads=None if pools is None else Seconds(pools),
        in_pool=None if in_pool is None else Share(in_pool),
        failed=failed,
        more_threads=Count(more) if advised else None,
        seconds=run.saved(float("nan"), threads=int(more)) if advised else float("nan"),
        severity="medium",
    )


def _say_blocked_tasks(f: Figures) -> Words:
    return (
        _how_they_wait(f),
        f"{f.tasks:task}, {f.lasted} in all; waits for a core are left out, and not all of their "
        f"workers read or wrote files meanwhile. {f.hottest}See "
        'time_accounting("function"), hot_lines() and processed_tasks("function").',
        _what_to_look_for(f),
    )


def _how_they_wait(f: Figures) -> str:
    if f.in_pool is not None:
        return (
            f"Tasks wait for threads or processes of their own: those of {f.function} stand in "
            f"concurrent.futures for {f.in_pool} of their time, and use the CPU for {f.on_cpu}."
        )
    if f.other_threads is not None:
        return (
            f"Tasks wait while other threads of their processes work: those of {f.function} use "
            f"the CPU for {f.on_cpu} of their time, other threads for {f.other_threads} in all."
        )
    return (
        f"Tasks sleep or wait: {f.function} uses the CPU for {f.on_cpu} of its time, and "
        f"{f.waiting} of the threads' time is spent so."
    )


def _what_to_look_for(f: Figures) -> list[str | Advice]:
    called = "calls of actors, each of which answers one at a time; " if f.actors else ""
    look = f"Look for what {f.function} waits for: {called}sleeps, locks, a service, the network."
    if f.other_threads is not None or f.in_pool is not None:
        return [
            f"If {f.function} starts threads of its own, or a library does for it, the cores are "
            "theirs: start no more of them than there are cores, over all tasks that run at a "
            "time."
        ]
    if f.more_threads is not None:
        words = (
            "As it has to wait, let more of it run side by side: "
            f"threads_per_worker={int(f.more_threads)} in place of {f.threads}."
        )
        return [look, Advice("more-threads", words, promises=True)]
    if any(f.waits.get(what, 0.0) >= _LOCKED for what in (PROCESS_LOCK, CLUSTER_LOCK, LOCK)):
        return [f"Samples stand where a lock is asked for: hold it for less. {look}"]
    if f.failed is not None:
        return [look, _turned_down(f.failed)]
    untold = (
        "Whether each waits for something of its own, so that more of them could wait side by "
        "side, or all for the same, this trace cannot tell"
    )
    sampled = "; more samples of stacks would." if not f.waits else "."
    return [look, untold + sampled]


def _turned_down(failed: Share) -> str:
    return (
        f"{failed} of its attempts failed: if what it calls turns them down as too many, more of "
        "them at a time would fail more often."
    )


def _share_failed(run: RunFigures, name: str) -> Share | None:
    """Return which share of a function's attempts that ended raised an error; None: hardly any."""
    own = run.attempts[run.attempts["function"] == name]
    raised = (own["status"] == "erred") & ~own["category"].isin([WORKER_LOST, WORKER_CLOSED])
    ended = raised | (own["status"] == "memory") | own["succeeded"]  # if its worker died later, too
    share = float(raised.sum() / max(ended.sum(), 1))
    return Share(share) if share >= _FAILED else None


def _backlog(run: RunFigures, rows: Array) -> bool:
    """Return whether so many task runs of a function were runnable, for want of a thread alone."""
    times = run.slots.times
    waited = (times.executing[rows] - times.ready[rows]) + (times.sent[rows] - times.runnable[rows])
    begins, ends = times.executing[rows].min(), run.slots.end[rows].max()
    return bool(waited.sum() >= _BACKLOG * run.threads * max(ends - begins, 1e-9))


def _turns(run: RunFigures, rows: Array) -> tuple[float | None, float]:
    """Return how long it takes until the next run of a function is served, if they take turns.

    And if those of each of several processes do so by themselves, for how long they wait.
    """
    times, worker = run.slots.times, run.trace.tasks["worker_id"].to_numpy()[rows]
    start, stop = times.start[rows], times.start[rows] + run.lasted[rows]
    turn = find_turn(start, stop)
    lanes = [np.flatnonzero(worker == each) for each in np.unique(worker)]
    if turn is not None or len(lanes) < 2:
        return turn, 0.0
    each = [find_turn(start[own], stop[own]) for own in lanes]
    if any(one is None for one in each):
        return None, 0.0
    # The one that is served at once lasts its turn, and what it does besides.
    least = [float((stop - start)[own].min()) for own in lanes]
    lasts = [max(one or 0.0, other) for one, other in zip(each, least, strict=True)]
    served = sum(one * len(own) for one, own in zip(lasts, lanes, strict=True))
    return None, float((stop - start).sum()) - served


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
    on_gpus = any(gpu.mean_utilization[0] >= _GPU_BUSY for gpu in run.gpus)
    if on_gpus or not waiting.any() or lost < _WAITING * run.wall:
        return np.empty(0, dtype=np.int64), 0.0
    return np.flatnonzero(waiting[functions.codes]), lost


def _waits_for_storage(run: RunFigures, rows: Array) -> bool:
    """Return whether task runs wait in calls of a storage, or as their processes move files."""
    return _waits_in_calls(run, rows) or _waits_for_files(run, rows)


def _waits_in_calls(run: RunFigures, rows: Array) -> bool:
    """Return whether task runs wait in calls of a storage for most of their waiting."""
    waits = float((run.working[rows] - run.cpu[rows]).sum())
    return waits > 0 and float(run.storage[rows].sum()) >= _SHOWN * waits


def _in_storage(run: RunFigures, name: str) -> Share:
    """Return the share of a function's time, as `cpu_share`, that it waits in such calls."""
    rows = run.rows_of(name)
    return Share(run.storage[rows].sum() / run.working[rows].sum())


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
