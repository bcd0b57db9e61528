"""Rules about data on its way: between workers, to disk and back, and the memory it lies in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import count, duration, percent, size
from dasfprof.analysis.model.accounting import ThreadTime
from dasfprof.analysis.model.critical_path import SegmentKind
from dasfprof.analysis.model.transfers import moved_outputs
from dasfprof.analysis.numeric.groups import Groups, ratio

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
    repeated = f", {size(again)} of it more than once" if again > 0.1 * total else ""
    yield Finding(
        f"Workers wait for data from each other: {percent(share)} of the threads' time and "
        f"{duration(on_path)} of the critical path, most of it for results of {name}.",
        f"{size(total)} were moved{repeated}; {size(nbytes)} of them are of "
        f'{name}, at {size(rate)}/s. See transfers("function") and '
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
    now = f" in place of {size(limit)}" if np.isfinite(limit) else ""
    yield Finding(
        f"Workers spill to disk for want of memory: {size(float(written.sum()))} were written and "
        f"{size(float(read.sum()))} read back.",
        f"{percent(share)} of the threads' time is spent on that, and {percent(around)} around "
        f"functions besides; one worker held up to {size(peak)} of results. See "
        'time_accounting("worker") and node_disk_usage().',
        f"Give each worker a memory_limit of {size(peak / _TARGET)} or more{now} (it spills "
        f"from {percent(_TARGET)} of its limit on), or use fewer threads a worker and smaller "
        "chunks, and release what is not needed any more (del futures; no persist of what is used "
        "once).",
        seconds=run.seconds_of(ThreadTime.UNSPILL_AND_SPILL)
        + (run.seconds_of(ThreadTime.TASK_OVERHEAD) if share < _DISK else 0.0),
        at_least="medium",
        worker=str(run.trace.workers["worker"].iloc[worst]),
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
        f"Workers paused, as their memory was nearly full: {count(len(workers), 'worker')} for "
        f"{percent(share)} of the threads' time.",
        f"A paused worker held {size(held)} of results; what its process uses beyond that Dask "
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
        f"A worker came near its memory limit: its process had {size(peak)} of {size(limit)}.",
        f"{count(int((share >= _NEAR_LIMIT).sum()), 'worker')} had {percent(_NEAR_LIMIT)} or more "
        "of theirs; Dask pauses them at 80 % and kills them at 95 %. See "
        "processes_resource_usage().",
        f"Give each worker a memory_limit of {size(peak / _PAUSES)} or more, or use fewer threads "
        "a worker or smaller chunks.",
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
        f"Host {host} ran out of memory: only {size(float(row['host_memory_available']))} of "
        f"{size(float(row['host_memory_total']))} were left.",
        f"That is {percent(float(left[worst]))}, {duration(at)} into the trace. See "
        "node_resource_usage().",
        "Run fewer workers or threads on this host, give them a smaller memory_limit so that they "
        "spill in time, or use smaller chunks.",
        at_least="medium",
        at_most="medium",
        start=at,
        stop=at,
    )
