"""Rules about transfers between workers, spilling, and the memory of workers and hosts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from dasfprof.analysis.diagnosis.balance import SMALL_SIDE, TO_ONE_PARTITION, transfers_of_join
from dasfprof.analysis.diagnosis.cores import fewer_threads
from dasfprof.analysis.diagnosis.memory_growth import TRIM
from dasfprof.analysis.diagnosis.registry import FEWER, MORE, Advice, Change, Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs, p2p_outputs, shuffled_bytes
from dasfprof.analysis.run.memory_thresholds import memory_thresholds
from dasfprof.analysis.wording import Bytes, Count, Rate, Seconds, Share

#: Thresholds of waits for transfers: fraction of thread time, and fraction of the critical path.
_TRANSFER_WAIT = 0.1
_TRANSFER_PATH = 0.15
#: Thresholds of merges with a small table: ratio of both sizes, and savings by wall time.
_LARGER, _MERGING = 5.0, 0.1
#: Threshold (bytes per second): the size of slower transfers does not explain their duration.
_SLOW = 1e6
#: Threshold (fraction of the transfers' time): time of serializing that counts as the cause.
_EXPLAINS = 0.5
#: Threshold (fraction of all transferred bytes): repeated transfers are reported.
_OFTEN = 0.1
#: Thresholds (fractions of thread time): spilling, task overhead in a run that spilled, and pauses.
_DISK = 0.03
_AROUND = 0.1
_PAUSED = 0.01
#: Threshold (fraction of the host's memory): hardly any memory is available.
_LITTLE_LEFT = 0.05
#: Dask's function, as it appears in keys, that prepares the items of a bag for `Bag.groupby`.
_BAG_GROUPBY = "groupby_tasks_group_hash"


@rule("transfer-bound", causes="load-imbalance too-few-tasks serial-chain")
def transfer_bound(run: RunFigures) -> Iterator[Finding]:
    """Find a run whose threads wait for data from other workers, or merge a small table."""
    yield from _merge_of_small_table(run)
    share, on_path = run.share_of(ThreadTime.TRANSFER_WAIT), run.path_seconds(SegmentKind.TRANSFER)
    if share < _TRANSFER_WAIT and on_path < _TRANSFER_PATH * run.wall:
        return
    codes, names = run.trace.keys.functions()
    moved = moved_outputs(run.trace, codes, len(names))
    if not moved.moves.any():
        return
    total, again = float(moved.size.sum()), float(moved.again.sum())
    most = min(
        np.flatnonzero(moved.moves).tolist(), key=lambda code: (-moved.size[code], names[code])
    )
    nbytes, seconds = float(moved.size[most]), float(moved.seconds[most])
    rate = nbytes / seconds if seconds > 0 else float("nan")
    by_serialising = moved.serialising[most] >= _EXPLAINS * seconds
    shuffled, hosts = shuffled_bytes(run.trace), run.trace.tasks["host"].nunique()
    cheaper = (
        "use arrays or frames instead of objects and lists, use a cheaper __reduce__, or do the "
        "work that needs these results inside {function}."
    )
    slow = ""
    suggestion: list[str | Advice] = [
        "Make results of {function} cheaper to serialize, since serializing takes longer than "
        f"sending their bytes: {cheaper}"
    ]
    if not rate < _SLOW:
        change = Change.of_cluster(n_workers=FEWER, threads_per_worker=MORE)
        fewer = [change] if run.worker_count > 1 else []
        suggestion = [
            "Transfer less data: reduce or filter inside {function} before its results leave "
            "their worker, use smaller types, and use client.replicate() or "
            "scatter(broadcast=True) for data that all tasks need.",
            Advice(
                "share-memory",
                "Use fewer workers with more threads, which share their memory.",
                changes=fewer,
            )
            if hosts == 1
            else "",
        ]
    elif by_serialising:
        slow = "Serializing them for other workers took {serialising}. "
    else:
        suggestion = [
            "Measure how long pickle.dumps() takes for one result of {function}: {moves:transfer} "
            "of these results took {each} each, which their size does not explain. If pickling is "
            "slow, "
            f"{cheaper} If not, check for blocked event loops, a busy host, and a slow network. "
            "This trace does not show which of these is the cause."
        ]
    if str(names[most]).startswith("shuffle-") and _groups_bag(run):
        suggestion = [
            "Group the bag with foldby() instead of groupby(), which moves every item to the "
            "worker of its group. foldby() reduces the items where they are. If the items cannot "
            "be reduced, use a dask.dataframe, which moves columns instead of objects."
        ]
    yield Finding.of(
        "Workers wait for data from each other: {waiting} of thread time and {on_path} of the "
        "critical path, mostly for results of {function}.",
        f"{{moved}} were transferred{', not counting P2P shuffles' if np.isnan(shuffled) else ''}. "
        "Results of {function} account for {of_function} of this, transferred at {rate}. "
        f"{'Repeated transfers account for {again}. ' if again > _OFTEN * total else ''}"
        f"{'P2P shuffles moved another {shuffled}. ' if shuffled > 0 else ''}"
        f'{slow}See transfers("function") and transfers().',
        suggestion,
        waiting=Share(share),
        on_path=Seconds(on_path),
        moved=Bytes(total),
        again=Bytes(again) if again > _OFTEN * total else None,
        shuffled=Bytes(shuffled),
        of_function=Bytes(nbytes),
        rate=Rate(rate),
        moves=Count(moved.moves[most]),
        each=Seconds(seconds / moved.moves[most]),
        by_size=not rate < _SLOW,
        serialising=Seconds(moved.serialising[most]) if by_serialising else None,
        hosts=Count(hosts),
        seconds=run.saved(max(run.seconds_of(ThreadTime.TRANSFER_WAIT), on_path), network=False),
        function=str(names[most]),
    )


def _merge_of_small_table(run: RunFigures) -> Iterator[Finding]:
    """Find the most expensive P2P join of a large table with a small one."""
    outputs, joins = np.flatnonzero(p2p_outputs(run.trace)), []
    for layer in np.unique(layers := run.layers.codes[outputs]).tolist():
        transfers, smaller, larger = transfers_of_join(run, outputs[layers == layer])
        if smaller <= SMALL_SIDE and smaller * _LARGER <= larger:
            joins.append((float(run.working[transfers].sum()), transfers, smaller, larger))
    if not joins:
        return
    moving, transfers, smaller, larger = max(joins, key=lambda join: join[0])
    without = run.with_durations(transfers, 0.0)
    if (seconds := run.saved(moving / run.threads, running=without)) < _MERGING * run.wall:
        return
    yield Finding.of(
        "A merge moves both of its tables between workers, although one has only {smaller}.",
        "The larger table has {larger}. {tasks:task} took {moving} to prepare the partitions of "
        'both tables and to send them, not counting CPU wait. See transfers("function").',
        TO_ONE_PARTITION,
        smaller=Bytes(smaller),
        larger=Bytes(larger),
        tasks=Count(len(transfers)),
        moving=Seconds(moving),
        seconds=seconds,
        # The advice does not help if the merge keeps rows of the smaller table without a match.
        at_most="medium",
        function=str(run.function_names[run.functions.codes[transfers[0]]]),
    )


def _groups_bag(run: RunFigures) -> bool:
    """Return whether the run grouped the items of a bag."""
    keys = run.trace.keys
    firsts = np.unique(keys.head_ids, return_index=True)[1]
    return any(_BAG_GROUPBY in text for text in keys.texts(firsts))


@rule(
    "spilling",
    causes="blocked-tasks io-bound stragglers serial-chain too-few-tasks "
    "load-imbalance transfer-bound paused-workers tasks-too-small slow-dispatch",
    refutes="more-threads",
    because="workers spill because memory runs out",
)
def spilling(run: RunFigures) -> Iterator[Finding]:
    """Find workers that run out of memory, write results to disk, and read them back."""
    written, read = run.counted("spill_write_size"), run.counted("spill_read_size")
    share = run.share_of(ThreadTime.UNSPILL_AND_SPILL)
    around = run.share_of(ThreadTime.TASK_OVERHEAD)
    if not (written + read).sum() > 0 or (share < _DISK and share + around < _AROUND):
        return
    peak = float(run.trace.managed_memory["size"].max())
    worst = int((written + read).argmax())
    limit, process = run.memory_limits[worst], run.highest("memory")[worst]
    thresholds = memory_thresholds(run.trace, worst)
    wanted = max(peak / thresholds.target, float(np.nan_to_num(process)) / thresholds.spill)
    now = " (currently {limit})" if np.isfinite(limit) else ""
    shares = {"its results reach": thresholds.target, "its process reaches": thresholds.spill}
    when = " or ".join(f"{what} {Share(at)}" for what, at in shares.items() if np.isfinite(at))
    # If the memory limit is unknown, it may already be as high as the wanted limit.
    more, changes = "Use", list[Change]()
    if wanted > limit and run.died_of_memory:
        more = (
            "Give each worker more memory (how much is unknown, because workers were killed before "
            "they had all they needed), or use"
        )
    elif wanted > limit:
        more = f"Give each worker a memory_limit of at least {{wanted}}{now}, or use"
        changes = [Change.of_cluster(memory_limit=int(wanted))]
    why = f" A worker spills when {when} of its limit." if when and changes else ""
    used = ". The process of one worker used up to {process}"
    yield Finding.of(
        "Workers run out of memory and spill to disk: {written} were written and {read} were "
        "read back.",
        "Spilling takes {spilling} of thread time. Other overhead, before and after the tasks' "
        "functions, takes {around}. One worker held up to {held} of "
        f"results{used if np.isfinite(process) else ''}. "
        'See time_accounting("worker") and node_disk_usage().',
        f"{more} fewer threads per worker and smaller chunks.{why} Release results that are no "
        "longer needed: delete their futures, and do not persist what is used only once.",
        written=Bytes(written.sum()),
        read=Bytes(read.sum()),
        spilling=Share(share),
        around=Share(around),
        held=Bytes(peak),
        limit=Bytes(limit),
        process=Bytes(process),
        wanted=Bytes(wanted) if wanted > limit else None,
        settings=changes,
        seconds=run.seconds_of(ThreadTime.UNSPILL_AND_SPILL)
        + (run.seconds_of(ThreadTime.TASK_OVERHEAD) if share < _DISK else 0.0),
        worker=run.life_label(worst),
    )


@rule(
    "paused-workers",
    causes="too-few-tasks serial-chain load-imbalance poor-placement",
    refutes="more-threads",
    because="the memory of workers was nearly full",
)
def paused_workers(run: RunFigures) -> Iterator[Finding]:
    """Find workers that paused because of full memory."""
    share = run.share_of(ThreadTime.PAUSED_FOR_MEMORY)
    state = run.trace.managed_memory.get("state")
    if share < _PAUSED or state is None:
        return
    paused = run.trace.managed_memory[(state == "paused").to_numpy(dtype=bool)]
    lives, times = paused["worker_id"].to_numpy(), run.trace.since_begin(paused["time"])
    unmanaged = _unmanaged_while_paused(run, paused)
    stays = " A paused worker had {unmanaged} of unmanaged memory while it ran no task."
    yield Finding.of(
        "Workers paused because their memory was nearly full: {workers:worker}, for {paused} of "
        "thread time.",
        f"A paused worker held up to {{held}} of results.{stays if unmanaged else ''} Dask cannot "
        "spill the other memory of its process. See processes_resource_usage() and "
        'time_accounting("worker").',
        f"{TRIM} A higher memory_limit would only delay the next pause."
        if unmanaged
        else "Give workers a higher memory_limit, or fewer threads each so that fewer tasks run at "
        "a time. Use smaller chunks, and check for memory that tasks leave behind.",
        # A worker that its nanny restarted counts as the same worker.
        workers=Count(len(np.unique(run.workers.of_lives[lives]))),
        paused=Share(share),
        held=Bytes(np.nanmax(paused["size"].to_numpy(dtype=float), initial=0.0)),
        unmanaged=Bytes(unmanaged) if unmanaged else None,
        settings=[] if unmanaged else [Change.of_cluster(memory_limit=MORE), *fewer_threads(run)],
        costs=run.seconds_of(ThreadTime.PAUSED_FOR_MEMORY),
        at_least="medium",
        worker=run.life_label(int(np.bincount(lives).argmax()) if len(paused) else 0),
        start=float(times.min(initial=np.inf)) if len(times) else float("nan"),
        stop=float(times.max(initial=-np.inf)) if len(times) else float("nan"),
    )


def _unmanaged_while_paused(run: RunFigures, paused: pd.DataFrame) -> float:
    """Return the maximum unmanaged memory (bytes) of a paused worker that ran no task.

    The result is 0 if this was less than the worker's results, or if it is unknown. `paused`
    contains the rows of `Trace.managed_memory` of paused workers.
    """
    quiet = paused[(paused["executing"] == 0).to_numpy(dtype=bool)]
    results = (quiet["size"] - quiet["spilled_size"].fillna(0)).to_numpy(dtype=float)
    lives = quiet["worker_id"].to_numpy(dtype=np.int64)
    pauses = [memory_thresholds(run.trace, life).pause for life in range(len(run.memory_limits))]
    # The process of a paused worker uses at least this fraction of the memory limit.
    unmanaged = (run.memory_limits * pauses)[lives] - results
    return float(unmanaged[np.isfinite(unmanaged) & (unmanaged > results)].max(initial=0.0))


@rule("host-memory-full", refutes="more-threads", because="a host ran out of memory")
def host_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find hosts with hardly any available memory."""
    samples = run.trace.samples.reindex(
        columns=["worker_id", "time", "host_memory_available", "host_memory_total"]
    ).dropna()
    # Total and available memory are 0 if the system does not report them, as in some containers.
    samples = samples[samples["host_memory_total"] > 0]
    if not len(samples):
        return
    left = (samples["host_memory_available"] / samples["host_memory_total"]).to_numpy(dtype=float)
    if left.min() > _LITTLE_LEFT:
        return
    row = samples.iloc[int(left.argmin())]
    at = run.trace.seconds_at(row["time"])
    yield Finding.of(
        "Host {host} ran out of memory: only {left} of {total} were available.",
        "This is {share} of the host's memory, {at} after the start of the trace. See "
        "node_resource_usage().",
        "Run fewer workers or threads on this host, give them a smaller memory_limit so that they "
        "spill in time, or use smaller chunks.",
        host=str(run.trace.workers["host"].iloc[int(row["worker_id"])]),
        left=Bytes(row["host_memory_available"]),
        total=Bytes(row["host_memory_total"]),
        share=Share(left.min()),
        at=Seconds(at),
        severity="medium",
        start=at,
        stop=at,
    )
