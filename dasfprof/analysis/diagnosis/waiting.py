"""Rules about tasks that wait for storage, a lock of their process, or something unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.cores import (
    cpu_share,
    most_of,
    processes_in_place_of_threads,
    sampled_libraries,
    threads_per_worker,
    without_waiting,
)
from dasfprof.analysis.diagnosis.registry import MORE, Advice, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.storage import unused_reads
from dasfprof.analysis.model.attempts import WORKER_CLOSED, WORKER_LOST
from dasfprof.analysis.model.links import find_turn
from dasfprof.analysis.model.processes import other_threads_cpu
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.numeric.groups import ratio
from dasfprof.analysis.stack_samples.places import (
    CLUSTER_LOCK,
    LOCK,
    NETWORK,
    PROCESS_LOCK,
    READER,
    SLEEP,
    TASK_POOL,
    hottest_line,
    waits_of,
)
from dasfprof.analysis.wording import Bytes, Count, Rate, Seconds, Share
from dasfprof.database.columns import Array

#: Thresholds of waiting functions: maximum fraction of their time on the CPU, and minimum fraction
#: of thread time for which they wait.
_WAITING_CPU = 0.3
_WAITING = 0.2
#: Threshold (fraction of a function's time): samples show that it sleeps or waits for a network.
_SLEEPS = 0.3
#: Threshold: the longest task, without CPU wait, waited if it took at least this multiple of the
#: interval at which tasks end.
_TURNS = 1.5
#: Thresholds of waits for storage: bytes of files per second of waiting, and the fraction of the
#: waiting that is on workers with at least this rate.
_IO_RATE = 5e6
_ALL = 0.9
#: Thresholds of waits for a lock: fraction of a function's time, and fraction of wall time.
_LOCKED, _LOCK_COSTS = 0.2, 0.05
#: Threshold (percent): if mean GPU utilization is higher, tasks may be waiting for their GPU.
_GPU_BUSY = 20.0
#: Maximum number of functions whose samples are searched for waits for a lock.
_MOST_LOCKED = 3
#: Threshold (fraction of the waiting time): samples show sleeping, or waits for the network.
_SHOWN = 0.5
#: Threshold: CPU time of other threads, as a multiple of the function's waiting time.
_OTHER_THREADS = 0.3
#: Maximum CPU time of other threads, as a multiple of the time of tasks meanwhile, if only one such
#: thread computes for each task at a time.
_ONE_EACH = 1.1
#: Maximum factor by which CPU wait is assumed to make other threads slower.
_STARVED = 10.0
#: Threshold: mean number of task runs that wait for a thread, as a multiple of the threads.
_BACKLOG = 1.0
#: Threshold (fraction of a function's attempts): failures. A service may be rejecting requests.
_FAILED = 0.05


@rule(
    "per-process-lock",
    explains="gil-contention blocked-tasks io-bound shared-bottleneck dominant-function stragglers "
    "slow-worker load-imbalance cpu-oversubscribed",
    refutes="more-threads share-memory",
    because="tasks wait for a lock of their process",
)
def per_process_lock(run: RunFigures) -> Iterator[Finding]:
    """Find functions whose tasks run one at a time per process, because they wait for a lock."""
    if not len(run.trace.tasks) or threads_per_worker(run) < 2:
        return
    waited = run.functions.sum(run.working - run.cpu)
    for code in np.argsort(-waited, kind="stable")[:_MOST_LOCKED].tolist():
        name = str(run.function_names[code])
        rows = run.rows_of(name)
        in_lock = waits_of(run.trace, name).get(PROCESS_LOCK, 0.0)
        lost = in_lock * run.working[rows]
        if in_lock < _LOCKED or lost.sum() / run.threads < _LOCK_COSTS * run.wall:
            continue
        left = run.working[rows] - lost + run.core_wait[rows]
        gain = run.saved(float("nan"), running=run.with_durations(rows, left))
        cores = sum(run.trace.surroundings.cores.values())
        least_wall = float(run.cpu.sum()) / cores if cores else 0.0
        yield Finding.of(
            "Only one task of {function} runs per process: its tasks spend {in_lock} of their time "
            "waiting for a lock in their process.",
            "Samples show these tasks in the lock's acquire(). This affects "
            "{tasks:task}, which took {lasted} in total. {hottest}See hot_lines() and "
            'time_accounting("function").',
            "Use processes instead of threads, because each process has its own lock: start "
            "{threads} times as many workers with threads_per_worker=1. Additional threads in a "
            "process would wait for the same lock.",
            function=name,
            in_lock=Share(in_lock),
            tasks=Count(len(rows)),
            lasted=Seconds(run.working[rows].sum()),
            hottest=hottest_line(run.trace, name),
            threads=threads_per_worker(run),
            settings=[processes_in_place_of_threads(run)],
            # More processes cannot make the run shorter than its CPU time divided by the cores.
            seconds=float(np.minimum(gain, run.wall - least_wall)),
            costs=float(lost.sum()) / run.threads,
        )


@rule("io-bound", explains="dominant-function")
@rule(
    "shared-bottleneck",
    explains="slow-worker load-imbalance stragglers poor-placement dominant-function",
    refutes="more-threads",
    because="tasks wait for something that serves one task at a time",
)
@rule("blocked-tasks", explains="dominant-function")
def waiting(run: RunFigures) -> Iterator[Finding]:
    """Find functions that mostly wait: for their turn, for storage, or for something unknown."""
    rows, lost = _waiting_rows(run)
    if not len(rows):
        return
    waits, name = float((run.working[rows] - run.cpu[rows]).sum()), most_of(run, rows)
    in_calls = waits > 0 and float(run.storage[rows].sum()) >= _SHOWN * waits
    name_rows = np.intersect1d(rows, run.rows_of(name))
    share = Share(run.share(lost * run.threads))
    start = run.slots.times.start[name_rows]
    turn = find_turn(start, start + run.lasted[name_rows])
    # On a starved host, waits for CPU can look like waits for a turn.
    if turn is not None and run.working[name_rows].max() >= _TURNS * turn:
        yield _in_turn(run, name, name_rows, waiting=share, turn=Seconds(turn))
    elif (sampled := _in_reader(run, name, name_rows)) or in_calls or _waits_for_files(run, rows):
        seconds = run.saved(lost, running=without_waiting(run, rows))
        sampled = 0.0 if in_calls else sampled
        yield _for_storage(run, rows, in_calls, sampled, waiting=share, seconds=seconds)
    else:
        yield _blocked(run, name, rows, name_rows, share)


def _in_reader(run: RunFigures, name: str, name_rows: Array) -> float:
    """Return the fraction of samples in which a function waits in libraries that read data.

    The fraction is 0 if most waits are for other things, or if other threads compute meanwhile.
    """
    waits = waits_of(run.trace, name)
    sampled, computed = waits.get(READER, 0.0), _of_others(run, name, name_rows)
    return 0.0 if computed or sampled < _SHOWN * sum(waits.values()) else sampled


def _of_others(run: RunFigures, name: str, name_rows: Array) -> bool:
    """Return whether other threads compute during much of the time in which a function waits."""
    cpu, core_wait = float(run.cpu[name_rows].sum()), float(run.core_wait[name_rows].sum())
    # The CPU wait of these threads was not recorded. It is assumed to be as long, per CPU second,
    # as that of the function's tasks.
    slower = min(1.0 + core_wait / max(cpu, 1e-9), _STARVED)
    others = other_threads_cpu(run.trace).get(name, 0.0) * slower
    return bool(others >= _OTHER_THREADS * (run.working - run.cpu)[name_rows].sum())


def _for_storage(
    run: RunFigures, rows: Array, in_calls: bool, sampled: float, **figures: Any
) -> Finding:
    """Return the finding about functions that wait for storage.

    `in_calls` is whether recorded requests explain the waits. `sampled` is the fraction of samples
    in libraries that read data, or 0 if samples do not explain the waits.
    """
    name = most_of(run, rows[run.storage[rows] > 0] if in_calls else rows)
    failed, moved = _share_failed(run, name), float(run.file_bytes.sum())
    unused = None
    if in_calls and "zarr" not in sampled_libraries(run, name):
        unused = unused_reads(run, name)
    if unused:
        figures |= unused
    name_rows = run.rows_of(name)
    cause, more = (
        (
            "and reads {read} although it uses only {used} of these.",
            "{requests:request} read {each} each (the mean), since fsspec reads files in complete "
            "blocks, and may read a block again. {hottest}See storage().",
        )
        if unused
        else (
            "and spends {in_storage} of its time waiting for requests to storage.",
            "See storage() for the stores, and for the number and bytes of requests.",
        )
        if in_calls
        else (
            "and spends {sampled} of its time in a library that reads files, as samples show.",
            "Requests of this library are not recorded. {hottest}See hot_lines().",
        )
        if sampled
        else (
            "and its processes read and write {moved} meanwhile.",
            "That is {rate} over the whole run. See processes_resource_usage() and "
            "node_disk_usage().",
        )
    )
    return Finding.of(
        f"Tasks wait for storage: {{function}} uses the CPU for {{on_cpu}} of its time, {cause}",
        f"Threads spend {{waiting}} of their time waiting for storage. {more}",
        [
            "Pass cache_type='blockcache' and block_size={block_size} to the call of fs.open() "
            "with which {function} opens its files. A file then reads only the blocks that contain "
            "what is asked for, and keeps 32 of them."
            if unused
            else "Make {function} read only the columns and rows that it needs. Store the data in "
            "a compressed format with larger chunks (Parquet, Zarr), on a local or faster disk.",
            _more_threads("Alternatively, run more threads per worker.")
            if failed is None
            else _TURNED_DOWN,
        ],
        rule="io-bound",
        function=name,
        on_cpu=cpu_share(run, name),
        in_storage=Share(run.storage[name_rows].sum() / run.working[name_rows].sum())
        if in_calls
        else None,
        sampled=Share(sampled) if sampled else None,
        hottest=hottest_line(run.trace, name) if sampled or unused else "",
        failed=failed,
        moved=Bytes(moved),
        rate=Rate(moved / run.wall),
        at_most="medium",
        **figures,
    )


def _in_turn(run: RunFigures, name: str, name_rows: Array, **figures: Any) -> Finding:
    """Return the finding about tasks that queue for something that serves one task at a time."""
    workers = len(np.unique(run.trace.tasks["worker_id"].to_numpy()[name_rows]))
    if_lock = (
        ". If it is a lock of the process, use more processes with one thread each, so that each "
        "has its own lock"
    )
    return Finding.of(
        "Tasks of {function} queue for something that serves one task every {turn}, however many "
        "are waiting. Threads spend {waiting} of their time on this.",
        "{tasks:task} on {workers:worker} took {lasted} in total. They end at regular intervals, "
        "and take longer when more of them run at once. {hottest}See hot_lines() and "
        "processed_tasks().",
        "Find out what {function} waits for: a lock, a file, a connection, or a service. Make each "
        "request cheaper, or provide more than one instance. Additional threads or workers would "
        f"only join the queue{if_lock if workers == 1 else ''}.",
        rule="shared-bottleneck",
        function=name,
        tasks=Count(len(name_rows)),
        lasted=Seconds(run.working[name_rows].sum()),
        workers=Count(workers),
        hottest=hottest_line(run.trace, name),
        costs=figures["waiting"] * run.wall,
        at_most="medium",
        **figures,
    )


def _blocked(run: RunFigures, name: str, rows: Array, name_rows: Array, share: Share) -> Finding:
    """Return the finding about functions that sleep or wait for something unknown."""
    waits, on_cpu = waits_of(run.trace, name), cpu_share(run, name)
    failed = _share_failed(run, name)
    others, threads = other_threads_cpu(run.trace).get(name, 0.0), threads_per_worker(run)
    of_others = _of_others(run, name, name_rows)
    helped = other_threads_cpu(run.trace, "helped").get(name, 0.0)
    waited = float((run.working - run.cpu)[name_rows].sum())
    # Tasks do not compete if only one thread computes for each of them, and has a core for it.
    competes = run.threads > 1 and (others > _ONE_EACH * helped or helped < _SHOWN * waited)
    in_pool = waits.get(TASK_POOL, 0.0) >= _LOCKED
    shown = max(waits.get(SLEEP, 0.0), waits.get(NETWORK, 0.0)) >= _SHOWN * sum(waits.values())
    more = min(max(round(threads / max(on_cpu, 0.1)), 2 * threads), 10 * threads)
    advised = bool(waits) and shown and not of_others and not in_pool and failed is None
    advised = advised and _backlog(run, name_rows)
    actors = len(run.trace.actor_calls) > 0
    called = "actor calls (each actor answers one call at a time), " if actors else ""
    look = (
        f"Find out what {{function}} waits for: {called}sleeps, locks, a service, or the network."
    )
    text = (
        "Tasks sleep or wait: {function} uses the CPU for {on_cpu} of its time, and threads "
        "spend {waiting} of their time waiting in such tasks."
    )
    suggestion: list[str | Advice] = [
        look,
        "It is not recorded whether all of these tasks wait for the same thing, or whether more "
        "of them could wait in parallel"
        + ("." if waits else ". More stack samples would show it."),
    ]
    if of_others or in_pool:
        text = (
            "Tasks wait for threads or processes that they started: tasks of {function} spend "
            "{in_pool} of their time in concurrent.futures, and use the CPU for {on_cpu}."
            if in_pool
            else "Tasks wait while other threads of their processes work: tasks of {function} "
            "use the CPU for {on_cpu} of their time, and other threads use it for "
            "{other_threads} in total."
        )
        limit = (
            "Limit the threads that {function} or its libraries start: all tasks that run in "
            "parallel should together start at most one thread per core."
        )
        unknown = (
            "Find out what these threads or processes do: samples do not show that they compute. "
            "If they only wait, you can start more of them than there are cores. If they compute, "
            "there should be at most one per core."
        )
        alone = (
            "Check in processes_resource_usage() whether these threads use the cores. If they do, "
            "there is nothing to change, because they do not compete with those of other tasks."
        )
        suggestion = [unknown if not of_others else limit if competes else alone]
    elif advised:
        words = (
            "Run more of these tasks in parallel while they wait: set threads_per_worker to "
            f"{more} (currently {{threads}})."
        )
        suggestion = [look, _more_threads(words, more, promises=True)]
    elif any(waits.get(what, 0.0) >= _LOCKED for what in (PROCESS_LOCK, CLUSTER_LOCK, LOCK)):
        suggestion = [
            f"Reduce the time for which tasks hold the lock that these samples show. {look}"
        ]
    elif failed is not None:
        suggestion = [look, _TURNED_DOWN]
    return Finding.of(
        text,
        "{tasks:task} took {lasted} in total, not counting CPU wait. Some of their workers neither "
        'read nor wrote files meanwhile. {hottest}See time_accounting("function"), hot_lines() '
        'and processed_tasks("function").',
        suggestion,
        rule="blocked-tasks",
        function=name,
        on_cpu=on_cpu,
        waiting=share,
        tasks=Count(len(rows)),
        lasted=Seconds(run.working[rows].sum()),
        hottest=hottest_line(run.trace, name),
        threads=threads,
        waits={what: Share(share) for what, share in waits.items()},
        other_threads=Seconds(others) if of_others else None,
        in_pool=Share(waits[TASK_POOL]) if in_pool else None,
        failed=failed,
        more_threads=Count(more) if advised else None,
        seconds=run.saved(float("nan"), threads=more) if advised else float("nan"),
        severity="low" if of_others and helped >= _SHOWN * waited else "medium",
    )


def _more_threads(text: str, number: int | str = MORE, promises: bool = False) -> Advice:
    return Advice("more-threads", text, promises, [Change.of_cluster(threads_per_worker=number)])


_TURNED_DOWN = (
    "Do not run more of these tasks in parallel if a service rejects requests: {failed} of the "
    "attempts failed."
)


def _share_failed(run: RunFigures, name: str) -> Share | None:
    """Return the fraction of a function's finished attempts that failed, or None if it is small."""
    of_function = run.attempts[run.attempts["function"] == name]
    raised = (of_function["status"] == "erred") & ~of_function["category"].isin(
        [WORKER_LOST, WORKER_CLOSED]
    )
    # An attempt with a result counts as successful, even if its worker died later.
    ended = raised | (of_function["status"] == "memory") | of_function["succeeded"]
    share = float(raised.sum() / max(ended.sum(), 1))
    return Share(share) if share >= _FAILED else None


def _backlog(run: RunFigures, rows: Array) -> bool:
    """Return whether most of a function's task runs had to wait for a free thread."""
    times = run.slots.times
    waited = (times.executing[rows] - times.ready[rows]) + (times.sent[rows] - times.runnable[rows])
    begins, ends = times.executing[rows].min(), run.slots.end[rows].max()
    return bool(waited.sum() >= _BACKLOG * run.threads * max(ends - begins, 1e-9))


def _waiting_rows(run: RunFigures) -> tuple[Array, float]:
    """Return the task runs of functions that mostly wait, and the wall seconds that the waits cost.

    The result is an empty array and 0 if the waits cost little, or if a GPU is busy.
    """
    functions = run.functions
    seconds, cpu = functions.sum(run.working), functions.sum(run.cpu)
    known = functions.known(run.task_column("cpu")) > 0
    waiting = known & (ratio(cpu, seconds) < _WAITING_CPU)
    # Add functions that use the CPU for long, but that also sleep or wait for a network according
    # to samples.
    blocked = np.where(waiting, 0.0, seconds - cpu)
    for code in np.argsort(-blocked, kind="stable")[:_MOST_LOCKED]:
        if known[code] and blocked[code] >= _SLEEPS * seconds[code] > 0:
            waits = waits_of(run.trace, str(run.function_names[code]))
            waiting[code] |= waits.get(SLEEP, 0.0) + waits.get(NETWORK, 0.0) >= _SLEEPS
    # Exclude P2P shuffles, whose tasks wait for tasks of other workers in any case.
    waiting[np.unique(functions.codes[p2p_runs(run.trace)])] = False
    lost = float((seconds - cpu)[waiting].sum()) / run.threads
    on_gpus = (run.gpus[1]["Mean GPU Utilization (%)"] >= _GPU_BUSY).any()
    if on_gpus or not waiting.any() or lost < _WAITING * run.wall:
        return np.empty(0, dtype=np.int64), 0.0
    return np.flatnonzero(waiting[functions.codes]), lost


def _waits_for_files(run: RunFigures, rows: Array) -> bool:
    """Return whether task runs wait while their workers read or write files."""
    worker = run.trace.tasks["worker_id"].to_numpy()[rows]
    waits = np.bincount(
        worker, weights=run.working[rows] - run.cpu[rows], minlength=len(run.file_bytes)
    )
    # If only one worker reads, it may be importing a library while tasks wait on all workers. So
    # nearly all of the waiting must be on workers that read or write many bytes.
    enough = run.file_bytes >= _IO_RATE * waits
    return bool(waits[enough].sum() >= _ALL * waits.sum())
