"""Refuters of what is said about GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.registry import Said, differs, exceeds, refuter

#: Percent of utilisation below which a device idles, and share of memory from which it is full.
_USED, _FULL = 5.0, 0.92


@refuter("gpu-idle")
def gpu_idle(said: Said, evidence: Evidence) -> Iterator[str]:
    """Look for readings in which the device was idle, and for what it used on average."""
    told = said.figures("GPU {count:index} of {name:host} for {share} of the time in which tasks")
    counts = said.figures("{count:idle} of {count:all} devices; mean utilisation there {count} %.")
    yield from _devices(evidence, counts["idle"].value, counts["all"].value)
    own = _readings(evidence).get((told["host"].text, int(told["index"].value)), Rows([]))
    utilization = own.numbers("utilization")
    if not len(own):
        yield "there is no reading of this device"
        return
    yield from exceeds(told["share"], 1 - np.nanmin(utilization) / 100, "its idle time")
    if not np.nanmin(utilization) <= counts["count"].value + 0.5 <= np.nanmax(utilization) + 1:
        yield f"its mean is not among {np.nanmin(utilization)} to {np.nanmax(utilization)} %"


@refuter("gpu-memory-full")
def gpu_memory_full(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the most memory of each device with what it has."""
    told = said.figures(
        "The memory of GPU {name:index} of {name:host} was nearly full: {factor:used} of "
        "{factor:total} GB."
    )
    counts = said.figures("{count:full} of {count:all} devices used")
    peaks = [
        float(np.nanmax(own.numbers("memory_used") / own.numbers("memory_total")))
        for own in _readings(evidence).values()
    ]
    yield from differs(counts["full"], sum(peak >= _FULL for peak in peaks), "full devices")
    yield from exceeds(told["used"], 1.001 * told["total"].value, "its memory")


@refuter("gpu-unused")
def gpu_unused(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count devices whose readings never were above idling."""
    told = said.figures("{count:unused} of {count:all} GPUs that workers have were not used by any")
    unused = sum(
        np.nanmax(own.numbers("utilization"), initial=0.0) < _USED
        for own in _readings(evidence).values()
    )
    yield from exceeds(told["unused"], unused, "devices that were never used")
    yield from _devices(evidence, told["unused"].value, told["all"].value)
    ran = said.figures("Tasks ran on their workers for up to {duration}.")["duration"]
    yield from exceeds(ran, evidence.runs.numbers("duration").sum(), "seconds of tasks")


def _readings(evidence: Evidence) -> dict[tuple[str, int], Rows]:
    return {
        (host, int(index)): rows
        for host, own in evidence.rows("GPU Usage").by("host").items()
        for index, rows in own.by("index").items()
        if index is not None
    }


def _devices(evidence: Evidence, some: float, every: float) -> Iterator[str]:
    known = len(_readings(evidence))
    if some > every or every != known:
        yield f"{some:.0f} of {every:.0f} devices, of which readings know {known}"
