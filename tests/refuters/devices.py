"""Refuters of what is said about GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.figures import Said, differs, exceeds, lies
from refuters.registry import refuter

#: Percent of utilisation below which a device idles, and share of memory from which it is full.
_USED, _FULL = 5.0, 0.92


@refuter("gpu-idle")
def gpu_idle(said: Said, evidence: Evidence) -> Iterator[str]:
    """Look for readings in which the device was idle, and for what it used on average."""
    if "unused" in said.figures:
        yield from _gpu_unused(said, evidence)
        return
    yield from _devices(evidence, said["idle_devices"], said["devices"])
    own = _readings(evidence).get((said["host"], int(said["gpu"])), Rows([]))
    utilization = own.numbers("utilization")
    if not len(own):
        yield "there is no reading of this device"
        return
    low, high = np.nanmin(utilization) / 100, np.nanmax(utilization) / 100
    yield from exceeds(said["idle"], 1 - low, "its idle time")
    yield from lies(said["utilisation"], low, high, "its mean utilisation")


@refuter("gpu-memory-full")
def gpu_memory_full(said: Said, evidence: Evidence) -> Iterator[str]:
    """Compare the most memory of each device with what it has."""
    peaks = [
        float(np.nanmax(own.numbers("memory_used") / own.numbers("memory_total")))
        for own in _readings(evidence).values()
    ]
    full = sum(peak >= _FULL for peak in peaks)
    yield from differs(said["full_devices"], full, "full devices")
    yield from differs(said["used"] / said["total"], max(peaks), "the fullest")


def _gpu_unused(said: Said, evidence: Evidence) -> Iterator[str]:
    """Count devices whose readings never were above idling."""
    unused = sum(
        np.nanmax(own.numbers("utilization"), initial=0.0) < _USED
        for own in _readings(evidence).values()
    )
    yield from exceeds(said["unused"], unused, "devices that were never used")
    yield from _devices(evidence, said["unused"], said["devices"])
    yield from exceeds(said["tasks_ran"], evidence.runs.sum("duration"), "seconds of tasks")


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
