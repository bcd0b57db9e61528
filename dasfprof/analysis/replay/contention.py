"""Whether tasks had to wait for a core, so that their durations hold for that load only."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.trace import Trace

#: Waiting for a core for so large a share of the functions' time, a run does not foretell another.
MOST_WAITING = 0.10
#: Where that was not recorded: a host that is so busy in the mean (%), with functions that use
#: the CPU for so large a share of their time, has no core to spare.
_FULL, _USING = 90.0, 0.5


def contention(trace: Trace) -> str:
    """Say, in words, that tasks waited for cores; empty where they did not, as far as is known."""
    tasks = trace.tasks
    duration = tasks["duration"].to_numpy(dtype=float)
    if "run_queue" in tasks:
        waited = tasks["run_queue"].to_numpy(dtype=float)
        told = np.isfinite(waited)
        seconds = duration[told].sum()
        if seconds > 0:
            share = waited[told].sum() / seconds
            if share < MOST_WAITING:
                return ""
            return (
                f"tasks waited for a core for {share:.0%} of their time (limit "
                f"{MOST_WAITING:.0%}), so that they would take another time on another cluster; "
                "record with fewer threads a host"
            )
    return _by_host(trace, duration)


def _by_host(trace: Trace, duration: np.ndarray) -> str:
    """Judge by the CPU that tasks and hosts used."""
    samples, cpu = trace.samples, trace.tasks["cpu"].to_numpy(dtype=float)
    told = np.isfinite(cpu)
    if "host_cpu" not in samples or not told.any() or duration[told].sum() <= 0:
        return ""
    using = cpu[told].sum() / duration[told].sum()
    start = trace.tasks["start"].to_numpy(dtype=float)
    time = samples["time"].to_numpy(dtype=float)
    busy = samples["host_cpu"].to_numpy(dtype=float)
    during = (time >= np.nanmin(start)) & (time <= np.nanmax(start + duration)) & np.isfinite(busy)
    if not during.any() or using < _USING or busy[during].mean() < _FULL:
        return ""
    return (
        f"the hosts' cores were busy for {busy[during].mean():.0f} % of the time while tasks used "
        "the CPU, so that these would take another time on another cluster; record with fewer "
        "threads a host"
    )
