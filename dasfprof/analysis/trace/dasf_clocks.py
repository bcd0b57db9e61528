"""Times since boot, which DASF recorded, moved to Unix time."""

from __future__ import annotations

import numpy as np

from dasfprof.database.columns import Array

#: Earlier than this (January 2004) a timestamp is not a Unix time but one since boot.
_EARLIEST_UNIX = float(1 << 30)
#: Boots are put on the grid of float64 Unix times, so that differences of times stay exact.
_GRID = float(1 << 22)


def boot_times(hosts: Array, times: Array, unix_times: Array, count: int) -> Array | None:
    """Find when hosts booted, from events that carry both clocks.

    Parameters
    ----------
    hosts, times, unix_times
        The number of each event's host, its timestamp, and the Unix time that it also tells.
    count
        How many hosts there are.

    Returns
    -------
    array or None
        For each host the Unix time of its boot: the median of the distance between the two
        clocks, which a step of one of them leaves alone. A host without such events gets the
        median of the others. None where no event is timed since boot.
    """
    since_boot = (times < _EARLIEST_UNIX) & (unix_times >= _EARLIEST_UNIX)
    if not since_boot.any():
        return None
    distances, hosts = (unix_times - times)[since_boot], hosts[since_boot]
    boots = np.full(count, np.nan)
    for host in np.unique(hosts).tolist():
        boots[host] = np.median(distances[hosts == host])
    boots[np.isnan(boots)] = np.nanmedian(boots)
    aligned: Array = np.round(boots * _GRID) / _GRID
    return aligned


def to_unix(times: Array, boots: Array) -> Array:
    """Move times since boot to Unix time, given each row's boot; Unix times stay."""
    return np.where(times < _EARLIEST_UNIX, times + boots, times)
