"""Refuters of findings about GPUs."""

from collections.abc import Iterator

import numpy as np

from refuters.evidence import Evidence, Rows
from refuters.figures import Claim, differs, exceeds, lies
from refuters.registry import refuter

#: Thresholds: utilization (%) below which a device is idle, and fraction of memory at which it is
#: full.
_USED, _FULL = 5.0, 0.92


@refuter("gpu-idle")
def gpu_idle(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Look for samples in which the device was idle, and compare its mean utilization."""
    if "unused" in claim.figures:
        yield from _gpu_unused(claim, evidence)
        return
    yield from _devices(evidence, claim["idle_devices"], claim["devices"])
    rows = _readings(evidence).get((claim["host"], int(claim["gpu"])), Rows([]))
    utilization = rows.numbers("utilization")
    if not len(rows):
        yield "there is no reading of this device"
        return
    low, high = np.nanmin(utilization) / 100, np.nanmax(utilization) / 100
    yield from exceeds(claim["idle"], 1 - low, "its idle time")
    yield from lies(claim["utilisation"], low, high, "its mean utilisation")


@refuter("gpu-memory-full")
def gpu_memory_full(claim: Claim, evidence: Evidence) -> Iterator[str]:
    peaks = [
        float(np.nanmax(rows.numbers("memory_used") / rows.numbers("memory_total")))
        for rows in _readings(evidence).values()
    ]
    full = sum(peak >= _FULL for peak in peaks)
    yield from differs(claim["full_devices"], full, "full devices")
    yield from differs(claim["used"] / claim["total"], max(peaks), "the fullest")


def _gpu_unused(claim: Claim, evidence: Evidence) -> Iterator[str]:
    unused = sum(
        np.nanmax(rows.numbers("utilization"), initial=0.0) < _USED
        for rows in _readings(evidence).values()
    )
    yield from exceeds(claim["unused"], unused, "devices that were never used")
    yield from _devices(evidence, claim["unused"], claim["devices"])
    yield from exceeds(claim["tasks_ran"], evidence.runs.sum("duration"), "seconds of tasks")


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
