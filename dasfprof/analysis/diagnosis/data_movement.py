"""Rules about data on its way: between workers, to disk and back, and the memory it lies in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.run_memory import SpilledAtOnce, spilled_at_once
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs, shuffled_bytes
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.wording import Advice, Bytes, Count, Figures, Rate, Seconds, Share, Words

#: Shares of the threads' time, or of the critical path, spent waiting for transfers.
_TRANSFER_WAIT = 0.1
_TRANSFER_PATH = 0.15
#: Bytes a second below which something else than the bytes takes the time of transfers.
_SLOW = 1e6
#: The share of the transfers' time that serialising takes, to be why.
_EXPLAINS = 0.5
#: The share of all bytes that were moved from which on it is told that they were more than once.
_OFTEN = 0.1
#: Shares of the threads' time spent on the disk, or around functions while anything was spilled.
_DISK = 0.03
_AROUND = 0.1
_PAUSED = 0.01
#: Workers begin to spill when results, and when processes, take this share of their memory limit,
#: by Dask's defaults.
_TARGET, _SPILL = 0.6, 0.7
#: What is said of a limit where a worker was killed for want of memory.
_UNKNOWN_NEED = (
    "Give each worker more memory (how much is unknown, as workers were killed on the way)"
)
#: They pause at this share, and are killed at 0.95; what comes so near is told.
_PAUSES = 0.8
_NEAR_LIMIT = 0.85
_LITTLE_LEFT = 0.05


@rule("transfer-bound")
def transfer_bound(run: RunFigures) -> Iterator[Finding]:
    """Find a run whose threads wait for data of other workers."""
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
    name, nbytes = str(names[most]), float(moved.size[most])
    rate = nbytes / moved.seconds[most] if moved.seconds[most] > 0 else float("nan")
    yield Finding.of(
        _say_transfer_bound,
        waiting=Share(share),
        on_path=Seconds(on_path),
        moved=Bytes(total),
        again=Bytes(again) if again > _OFTEN * total else None,
        shuffled=Bytes(shuffled_bytes(run.trace)),
        of_function=Bytes(nbytes),
        rate=Rate(rate),
        moves=Count(moved.moves[most]),
        each=Seconds(moved.seconds[most] / moved.moves[most]),
        by_size=not rate < _SLOW,
        serialising=Seconds(moved.serialising[most])
        if moved.serialising[most] >= _EXPLAINS * moved.seconds[most]
        else None,
        hosts=Count(run.trace.tasks["host"].nunique()),
        seconds=run.saved(max(run.seconds_of(ThreadTime.TRANSFER_WAIT), on_path), network=False),
        function=name,
    )


def _why_slow(f: Figures) -> str:
    """Say why few bytes took long, as far as is known, and what to change."""
    change = (
        "use arrays or frames in place of objects and lists, a cheaper __reduce__, or do what "
        f"needs it within {f.function}."
    )
    if f.serialising is not None:
        return f"Serialising results of {f.function} is slow, and not their bytes: {change}"
    return (
        f"Their bytes do not explain that: {f.moves:transfer} of results of {f.function} took "
        f"{f.each} each. Serialising them may, or event loops that are held up, a busy host, "
        "a slow network: this trace cannot tell. Time pickle.dumps() of one such result; where "
        f"that is slow, {change}"
    )


def _say_transfer_bound(f: Figures) -> Words:
    repeated = "" if f.again is None else f", {f.again} of it more than once"
    by_p2p = f", and {f.shuffled} by P2P shuffles" if f.shuffled > 0 else ""
    if np.isnan(f.shuffled):
        by_p2p = ", without P2P shuffles"
    serialising = ""
    if not f.by_size and f.serialising is not None:
        serialising = f"Serialising them for other workers took {f.serialising}. "
    return (
        f"Workers wait for data from each other: {f.waiting} of the threads' time and {f.on_path} "
        f"of the critical path, most of it for results of {f.function}.",
        f"{f.moved} were moved{repeated}{by_p2p}; {f.of_function} of them are of {f.function}, at "
        f"{f.rate}. {serialising}"
        'See transfers("function") and transfers().',
        [_why_slow(f)]
        if not f.by_size
        else [
            f"Move less: reduce or filter within {f.function} before its results leave their "
            "worker, use smaller types, and client.replicate() or scatter(broadcast=True) what all "
            "tasks need.",
            Advice("share-memory", "Fewer workers with more threads share memory.")
            if f.hosts == 1
            else "",
        ],
    )


@rule("spilling")
def spilling(run: RunFigures) -> Iterator[Finding]:
    """Find workers that write results to disk for want of memory, and read them back."""
    written, read = run.counted("spill_write_size"), run.counted("spill_read_size")
    nbytes = float(written.sum() + read.sum())
    share = run.share_of(ThreadTime.UNSPILL_AND_SPILL)
    around = run.share_of(ThreadTime.TASK_OVERHEAD)
    if not nbytes > 0 or (share < _DISK and share + around < _AROUND):
        return
    groups = Groups(run.trace.managed_memory["worker_id"].to_numpy(), len(run.trace.workers))
    held = groups.max(run.trace.managed_memory["size"].to_numpy(dtype=float))
    peak = float(np.nanmax(held))
    worst = int((written + read).argmax())
    limit, process = run.memory_limits[worst], run.memory_peaks[worst]
    wanted = max(peak / _TARGET, float(np.nan_to_num(process)) / _SPILL)
    yield Finding.of(
        _say_spilling,
        written=Bytes(written.sum()),
        read=Bytes(read.sum()),
        spilling=Share(share),
        around=Share(around),
        held=Bytes(peak),
        limit=Bytes(limit),
        process=Bytes(process),
        # Of an unknown limit nothing tells whether that is more or less.
        wanted=Bytes(wanted) if wanted > limit else None,
        at_the_least=run.died_of_memory,
        disk=_on_disk(spilled_at_once(run.trace)),
        seconds=run.seconds_of(ThreadTime.UNSPILL_AND_SPILL)
        + (run.seconds_of(ThreadTime.TASK_OVERHEAD) if share < _DISK else 0.0),
        at_least="medium",
        worker=str(run.trace.workers["worker"].iloc[worst]),
    )


def _on_disk(spilled: SpilledAtOnce | None) -> Figures | None:
    """Return how much disk was needed at once, and what was left of it, if that is known."""
    if spilled is None:
        return None
    of_one, of_all = Bytes(spilled.of_one), Bytes(spilled.peak)
    return Figures(host=spilled.host, of_one=of_one, of_all=of_all, free=Bytes(spilled.free))


def _say_spilling(f: Figures) -> Words:
    now = f" in place of {f.limit}" if np.isfinite(f.limit) else ""
    of_one = f", and had up to {f.disk.of_one} of them on disk" if f.disk else ""
    process = f"; the process of one had up to {f.process}" if np.isfinite(f.process) else ""
    more = (
        ""
        if f.wanted is None
        else f"{_UNKNOWN_NEED}, or use "
        if f.at_the_least
        else f"Give each worker a memory_limit of {f.wanted} or more{now} (it spills from "
        f"{Share(_TARGET)} of its limit in results on, or {Share(_SPILL)} in all), or use "
    )
    return (
        f"Workers spill to disk for want of memory: {f.written} were written and {f.read} read "
        "back.",
        f"{f.spilling} of the threads' time is spent on that, and {f.around} around functions "
        f"besides; one worker held up to {f.held} of results{of_one}{process}. "
        f"{_disk_needed(f.disk)}See "
        'time_accounting("worker") and node_disk_usage().',
        f"{more or 'Use '}fewer threads a worker and smaller chunks, and release what is not "
        f"needed any more (del futures; no persist of what is used once).{_more_room(f.disk)}",
    )


def _disk_needed(disk: Figures | None) -> str:
    if disk is None:
        return ""
    left = (
        f"the disk to which they spill had {disk.free} free at least"
        if np.isfinite(disk.free)
        else "what was free on the disk to which they spill is not recorded"
    )
    return f"All workers of {disk.host} had up to {disk.of_all} on disk at once; {left}. "


def _more_room(disk: Figures | None) -> str:
    if disk is None or not disk.free < disk.of_all:
        return ""
    return (
        " And give them a disk with more room, by --local-directory or "
        "temporary-directory: as much again does not fit."
    )


@rule("memory-pressure")
def memory_pressure(run: RunFigures) -> Iterator[Finding]:
    """Find workers that paused, as their memory was nearly full."""
    share = run.share_of(ThreadTime.PAUSED_FOR_MEMORY)
    state = run.trace.managed_memory.get("state")
    if share < _PAUSED or state is None:
        return
    paused = run.trace.managed_memory[(state == "paused").to_numpy(dtype=bool)]
    # One that a nanny restarted is the same.
    workers = np.unique(run.workers.of_lives[paused["worker_id"].to_numpy()])
    worst = int(np.bincount(paused["worker_id"].to_numpy()).argmax()) if len(paused) else 0
    held = float(np.nanmax(paused["size"].to_numpy(dtype=float), initial=0.0))
    times = run.trace.since_begin(paused["time"])
    yield Finding.of(
        _say_memory_pressure,
        workers=Count(len(workers)),
        paused=Share(share),
        held=Bytes(held),
        costs=run.seconds_of(ThreadTime.PAUSED_FOR_MEMORY),
        at_least="medium",
        worker=str(run.trace.workers["worker"].iloc[worst]),
        start=float(times.min(initial=np.inf)) if len(times) else float("nan"),
        stop=float(times.max(initial=-np.inf)) if len(times) else float("nan"),
    )


def _say_memory_pressure(f: Figures) -> Words:
    return (
        f"Workers paused, as their memory was nearly full: {f.workers:worker} for {f.paused} of "
        "the threads' time.",
        f"A paused worker held {f.held} of results; what its process uses beyond that Dask cannot "
        'spill. See time_accounting("worker") and processes_resource_usage().',
        "Give workers more memory_limit, or fewer threads each so that fewer tasks run at a time; "
        "use smaller chunks; and look for memory that tasks leave behind.",
    )


@rule("memory-near-limit")
def memory_near_limit(run: RunFigures) -> Iterator[Finding]:
    """Find workers whose process came near the limit at which Dask kills it."""
    share = ratio(run.memory_peaks, run.memory_limits)
    if not (share >= _NEAR_LIMIT).any():
        return
    worst = int(np.nanargmax(share))
    peak = run.memory_peaks[worst]
    yield Finding.of(
        _say_memory_near_limit,
        used=Bytes(peak),
        limit=Bytes(run.memory_limits[worst]),
        wanted=Bytes(peak / _PAUSES),
        at_the_least=run.died_of_memory,
        workers=Count((share >= _NEAR_LIMIT).sum()),
        severity="low",
        worker=str(run.trace.workers["worker"].iloc[worst]),
    )


def _say_memory_near_limit(f: Figures) -> Words:
    more = f"Give each worker a memory_limit of {f.wanted} or more"
    return (
        f"A worker came near its memory limit: its process had {f.used} of {f.limit}.",
        f"{f.workers:worker} had {Share(_NEAR_LIMIT)} or more of theirs; Dask pauses them at 80 % "
        "and kills them at 95 %. See processes_resource_usage().",
        f"{_UNKNOWN_NEED if f.at_the_least else more}, or use fewer threads a worker or smaller "
        "chunks.",
    )


@rule("host-memory-full")
def host_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find hosts that have hardly any memory left."""
    samples = run.trace.samples.reindex(
        columns=["worker_id", "time", "host_memory_available", "host_memory_total"]
    ).dropna()
    # Where the system tells nothing, as in some containers, both are 0.
    samples = samples[samples["host_memory_total"] > 0]
    if not len(samples):
        return
    left = (samples["host_memory_available"] / samples["host_memory_total"]).to_numpy(dtype=float)
    worst = int(left.argmin())
    if left[worst] > _LITTLE_LEFT:
        return
    row = samples.iloc[worst]
    at = run.trace.seconds_at(row["time"])
    yield Finding.of(
        _say_host_memory_full,
        host=str(run.trace.workers["host"].iloc[int(row["worker_id"])]),
        left=Bytes(row["host_memory_available"]),
        total=Bytes(row["host_memory_total"]),
        share=Share(left[worst]),
        at=Seconds(at),
        severity="medium",
        start=at,
        stop=at,
    )


def _say_host_memory_full(f: Figures) -> Words:
    return (
        f"Host {f.host} ran out of memory: only {f.left} of {f.total} were left.",
        f"That is {f.share}, {f.at} into the trace. See node_resource_usage().",
        "Run fewer workers or threads on this host, give them a smaller memory_limit so that they "
        "spill in time, or use smaller chunks.",
    )
