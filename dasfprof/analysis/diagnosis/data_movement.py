"""Rules about data on its way: between workers, to disk and back, and the memory it lies in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.p2p import shuffled_bytes
from dasfprof.analysis.model.spilled import SpilledAtOnce, spilled_at_once
from dasfprof.analysis.model.thread_time import ThreadTime
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.text import count_of, format_duration, format_share, format_size

#: Shares of the threads' time, or of the critical path, spent waiting for transfers.
_TRANSFER_WAIT = 0.1
_TRANSFER_PATH = 0.15
#: Shares of the threads' time spent on the disk, or around functions while anything was spilled.
_DISK = 0.03
_AROUND = 0.1
_PAUSED = 0.01
#: Workers begin to spill at this share of their memory limit, by Dask's defaults.
_TARGET = 0.6
#: They pause at this share, and are killed at 0.95; what comes so near is told.
_PAUSES = 0.8
_NEAR_LIMIT = 0.85
_LITTLE_LEFT = 0.05


@rule(
    "transfer-bound",
    symptoms=(
        "imbalance",
        "too-few-tasks",
        "serial-chain",
        "deserialising",
    ),
)
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
    repeated = f", {format_size(again)} of it more than once" if again > 0.1 * total else ""
    by_p2p = shuffled_bytes(run.trace)
    shuffled = f", and {format_size(by_p2p)} by P2P shuffles" if by_p2p > 0 else ""
    if np.isnan(by_p2p):
        shuffled = ", without P2P shuffles"
    yield Finding(
        f"Workers wait for data from each other: {format_share(share)} of the threads' time and "
        f"{format_duration(on_path)} of the critical path, most of it for results of {name}.",
        f"{format_size(total)} were moved{repeated}{shuffled}; {format_size(nbytes)} of them are "
        "of "
        f'{name}, at {format_size(rate)}/s. See transfers("function") and '
        "transfers().",
        f"Move less: reduce or filter within {name} before its results leave their worker, use "
        "smaller types, and client.replicate() or scatter(broadcast=True) what all tasks need"
        + ("; fewer workers with more threads share memory." if run.hosts == 1 else "."),
        seconds=run.saved(max(run.seconds_of(ThreadTime.TRANSFER_WAIT), on_path), network=False),
        function=name,
    )


@rule(
    "spilling",
    symptoms=(
        "blocked-tasks",
        "io-bound",
        "straggling-tasks",
        "degrading-functions",
        "serial-chain",
        "too-few-tasks",
        "imbalance",
        "transfer-bound",
        "memory-pressure",
        "tasks-too-small",
        "late-receipt",
    ),
)
def spilling(run: RunFigures) -> Iterator[Finding]:
    """Find workers that write results to disk for want of memory, and read them back."""
    written, read = run.counted("spill_write_size"), run.counted("spill_read_size")
    nbytes = float(written.sum() + read.sum())
    share, around = (
        run.share_of(ThreadTime.UNSPILL_AND_SPILL),
        run.share_of(ThreadTime.TASK_OVERHEAD),
    )
    if not nbytes > 0 or (share < _DISK and share + around < _AROUND):
        return
    groups = Groups(run.trace.managed_memory["worker_id"].to_numpy(), len(run.trace.workers))
    held = groups.max(run.trace.managed_memory["size"].to_numpy(dtype=float))
    peak = float(np.nanmax(held))
    worst = int((written + read).argmax())
    limit = run.memory_limits[worst]
    on_disk = spilled_at_once(run.trace)
    now = f" in place of {format_size(limit)}" if np.isfinite(limit) else ""
    yield Finding(
        f"Workers spill to disk for want of memory: {format_size(float(written.sum()))} were "
        f"written and {format_size(float(read.sum()))} read back.",
        f"{format_share(share)} of the threads' time is spent on that, and {format_share(around)} "
        f"around functions besides; one worker held up to {format_size(peak)} of results"
        + (f", and had up to {format_size(on_disk.of_one)} of them on disk" if on_disk else "")
        + f". {_disk_needed(on_disk)}See "
        'time_accounting("worker") and node_disk_usage().',
        f"Give each worker a memory_limit of {format_size(peak / _TARGET)} or more{now} (it spills "
        f"from {format_share(_TARGET)} of its limit on), or use fewer threads a worker and smaller "
        "chunks, and release what is not needed any more (del futures; no persist of what is used "
        f"once).{_more_room(on_disk)}",
        seconds=run.seconds_of(ThreadTime.UNSPILL_AND_SPILL)
        + (run.seconds_of(ThreadTime.TASK_OVERHEAD) if share < _DISK else 0.0),
        at_least="medium",
        worker=str(run.trace.workers["worker"].iloc[worst]),
    )


def _disk_needed(spilled: SpilledAtOnce | None) -> str:
    """Say how much disk was needed at once, and what was left of it; empty if that is unknown."""
    if spilled is None:
        return ""
    left = (
        f"the disk to which they spill had {format_size(spilled.free)} free at least"
        if np.isfinite(spilled.free)
        else "what was free on the disk to which they spill is not recorded"
    )
    return (
        f"All workers of {spilled.host} had up to {format_size(spilled.peak)} on disk at once; "
        f"{left}. "
    )


def _more_room(spilled: SpilledAtOnce | None) -> str:
    if spilled is None or not spilled.free < spilled.peak:
        return ""
    return (
        " And give them a disk with more room, by --local-directory or "
        "temporary-directory: as much again does not fit."
    )


@rule(
    "memory-pressure",
    symptoms=(
        "too-few-tasks",
        "serial-chain",
        "imbalance",
        "poor-placement",
    ),
)
def memory_pressure(run: RunFigures) -> Iterator[Finding]:
    """Find workers that paused, as their memory was nearly full."""
    share = run.share_of(ThreadTime.PAUSED_FOR_MEMORY)
    state = run.trace.managed_memory.get("state")
    if share < _PAUSED or state is None:
        return
    paused = run.trace.managed_memory[(state == "paused").to_numpy(dtype=bool)]
    workers = paused["worker_id"].unique()
    worst = int(np.bincount(paused["worker_id"].to_numpy()).argmax()) if len(paused) else 0
    held = float(np.nanmax(paused["size"].to_numpy(dtype=float), initial=0.0))
    times = paused["time"].to_numpy() - run.trace.begin
    yield Finding(
        f"Workers paused, as their memory was nearly full: {count_of(len(workers), 'worker')} for "
        f"{format_share(share)} of the threads' time.",
        f"A paused worker held {format_size(held)} of results; what its process uses beyond that "
        "Dask "
        'cannot spill. See time_accounting("worker") and processes_resource_usage().',
        "Give workers more memory_limit, or fewer threads each so that fewer tasks run at a time; "
        "use smaller chunks; and look for memory that tasks leave behind.",
        seconds=run.seconds_of(ThreadTime.PAUSED_FOR_MEMORY),
        at_least="medium",
        worker=str(run.trace.workers["worker"].iloc[worst]),
        start=float(times.min(initial=np.inf)) if len(times) else float("nan"),
        stop=float(times.max(initial=-np.inf)) if len(times) else float("nan"),
    )


@rule("memory-near-limit")
def memory_near_limit(run: RunFigures) -> Iterator[Finding]:
    """Find workers whose process came near the limit at which Dask kills it."""
    share = ratio(run.memory_peaks, run.memory_limits)
    if not (share >= _NEAR_LIMIT).any():
        return
    worst = int(np.nanargmax(share))
    limit, peak = run.memory_limits[worst], run.memory_peaks[worst]
    yield Finding(
        f"A worker came near its memory limit: its process had {format_size(peak)} of "
        f"{format_size(limit)}.",
        f"{count_of(int((share >= _NEAR_LIMIT).sum()), 'worker')} had {format_share(_NEAR_LIMIT)} "
        "or more of theirs; Dask pauses them at 80 % and kills them at 95 %. See "
        "processes_resource_usage().",
        f"Give each worker a memory_limit of {format_size(peak / _PAUSES)} or more, or use fewer "
        "threads a worker or smaller chunks.",
        at_least="low",
        at_most="low",
        worker=str(run.trace.workers["worker"].iloc[worst]),
    )


@rule("host-memory-full")
def host_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find hosts that have hardly any memory left."""
    samples = run.trace.samples.reindex(
        columns=["worker_id", "time", "host_memory_available", "host_memory_total"]
    ).dropna()
    if not len(samples):
        return
    left = (samples["host_memory_available"] / samples["host_memory_total"]).to_numpy(dtype=float)
    worst = int(left.argmin())
    if left[worst] > _LITTLE_LEFT:
        return
    row = samples.iloc[worst]
    host = run.trace.workers["host"].iloc[int(row["worker_id"])]
    at = float(row["time"]) - run.trace.begin
    yield Finding(
        f"Host {host} ran out of memory: only {format_size(float(row['host_memory_available']))} "
        f"of {format_size(float(row['host_memory_total']))} were left.",
        f"That is {format_share(float(left[worst]))}, {format_duration(at)} into the trace. See "
        "node_resource_usage().",
        "Run fewer workers or threads on this host, give them a smaller memory_limit so that they "
        "spill in time, or use smaller chunks.",
        at_least="medium",
        at_most="medium",
        start=at,
        stop=at,
    )
