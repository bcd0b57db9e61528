"""How much of their disks the workers of a host needed for spilling, all at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class SpilledAtOnce:
    """The host whose workers had most on disk at a time."""

    host: str
    #: Bytes of results that its workers had on disk at once, and the most of one worker.
    peak: float
    of_one: float
    #: The least that was free on the disk to which they spill; NaN: unknown.
    free: float


def spilled_at_once(trace: Trace) -> SpilledAtOnce | None:
    """Find the most bytes that the workers of one host had spilled at a time; None if none had."""
    samples, workers = trace.managed_memory, trace.workers
    if "spilled_size" not in samples or not len(samples):
        return None
    sizes = np.nan_to_num(samples["spilled_size"].to_numpy(dtype=float))
    if not sizes.max() > 0:
        return None
    ids, times = samples["worker_id"].to_numpy(), samples["time"].to_numpy(dtype=float)
    # What a worker had spilled is gone with it.
    lives = np.unique(ids)
    ends = workers["last_seen"].to_numpy(dtype=float)[lives]
    ids, times = np.append(ids, lives), np.append(times, np.fmax(ends, -np.inf))
    sizes = np.append(sizes, np.zeros(len(lives)))
    hosts = workers["host"].to_numpy(dtype=object)[ids]
    peaks = {
        str(host): _peak(ids[own], times[own], sizes[own])
        for host in dict.fromkeys(hosts.tolist())
        for own in [np.flatnonzero(hosts == host)]
    }
    host = max(peaks, key=lambda each: peaks[each])
    return SpilledAtOnce(host, peaks[host], float(sizes.max()), _free(trace, host))


def _peak(ids: Array, times: Array, sizes: Array) -> float:
    """Return the most that the last readings of all workers summed up to."""
    order = np.lexsort((times, ids))
    ids, times, sizes = ids[order], times[order], sizes[order]
    first = np.append(True, ids[1:] != ids[:-1])
    change = np.where(first, sizes, np.diff(sizes, prepend=0.0))
    in_time = np.argsort(times, kind="stable")
    return float(np.cumsum(change[in_time]).max(initial=0.0))


def _free(trace: Trace, host: str) -> float:
    disks = trace.disk_usage
    if not len(disks):
        return float("nan")
    hosts = trace.workers["host"].to_numpy(dtype=object)[disks["worker_id"].to_numpy()]
    own = (hosts == host) & (disks["local_directory"].to_numpy(dtype=float) == 1)
    free = disks["free"].to_numpy(dtype=float)[own]
    return float(np.nanmin(free)) if np.isfinite(free).any() else float("nan")
