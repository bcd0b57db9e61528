"""Rules about GPUs: idle though their workers compute, or full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, Words, rule, said
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.gpus import GpuUtilisation
from dasfprof.analysis.wording import Bytes, Count, Figures, Seconds, Share

#: The share of the time in which tasks ran on a device's workers for which it idled.
_IDLE = 0.5
#: The share of the run for which tasks have to run there.
_RAN = 20.0
#: A device that was never busier than this, in percent, is not used at all.
_USED = 5.0
_FULL = 0.92


@rule("gpu-idle")
def gpu_idle(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs that idle while their workers compute."""
    found = [
        gpu
        for gpu in _owned(run)
        if gpu.max_utilization[0] >= _USED
        and gpu.idle_while_tasks_ran[0] >= _IDLE * gpu.tasks_ran[0]
    ]
    if not found:
        return
    seconds = [float(gpu.idle_while_tasks_ran[0] / 100 * gpu.seconds[0]) for gpu in found]
    worst = found[int(np.argmax(seconds))]
    yield said(
        _say_gpu_idle,
        **_device(run, worst),
        idle=Share(worst.idle_while_tasks_ran[0] / worst.tasks_ran[0]),
        utilisation=Share(worst.mean_utilization[0] / 100),
        idle_devices=Count(len(found)),
        devices=Count(len(run.gpus)),
        costs=max(seconds),
        at_most="medium",
    )


def _say_gpu_idle(f: Figures) -> Words:
    return (
        f"GPUs idle while their workers compute: GPU {f.gpu} of {f.host} for {f.idle} of the time "
        "in which tasks run there.",
        f"{f.idle_devices} of {f.devices} devices; mean utilisation there {f.utilisation}. See "
        "per_gpu_utilisation() and per_function_bottleneck().",
        "Move the tasks that run on the CPU to the GPU, or onto workers without one; feed it "
        "larger chunks, so that kernels take longer than their launch; and keep data on the "
        "device between tasks.",
    )


@rule("gpu-memory-full")
def gpu_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs whose memory is nearly full."""
    used = np.array([gpu.max_memory[0] / gpu.memory_total[0] for gpu in run.gpus], dtype=float)
    if not (used >= _FULL).any():
        return
    worst = run.gpus[int(np.nan_to_num(used).argmax())]
    yield said(
        _say_gpu_memory_full,
        **_device(run, worst),
        used=Bytes(worst.max_memory[0]),
        total=Bytes(worst.memory_total[0]),
        full_devices=Count((used >= _FULL).sum()),
        devices=Count(len(used)),
        severity="medium",
    )


def _say_gpu_memory_full(f: Figures) -> Words:
    return (
        f"The memory of GPU {f.gpu} of {f.host} was nearly full: {f.used / 1e9:.3g} of "
        f"{f.total / 1e9:.3g} GB.",
        f"{f.full_devices} of {f.devices} devices used {Share(_FULL)} or more. See "
        "per_gpu_utilisation(1.0) for when.",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and an RMM pool (rmm_pool_size=0.9) against fragmentation. A "
        "pool that takes all memory by itself looks like this too.",
    )


@rule("gpu-unused")
def gpu_unused(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs of workers that no task used."""
    found = [gpu for gpu in _owned(run) if gpu.max_utilization[0] < _USED]
    if not found:
        return
    seconds = max(float(gpu.tasks_ran[0] / 100 * gpu.seconds[0]) for gpu in found)
    yield said(
        _say_gpu_unused,
        worker=_worker(run, found[0]),
        unused=Count(len(found)),
        devices=Count(len(run.gpus)),
        tasks_ran=Seconds(seconds),
        severity="low",
    )


def _say_gpu_unused(f: Figures) -> Words:
    return (
        f"{f.unused} of {f.devices} GPUs that workers have were not used by any task.",
        f"Tasks ran on their workers for up to {f.tasks_ran}. See per_gpu_utilisation().",
        "Run this part on workers without a GPU, or use libraries that compute there (CuPy, cuDF: "
        'dask.config.set({"array.backend": "cupy", "dataframe.backend": "cudf"})).',
    )


def _owned(run: RunFigures) -> list[GpuUtilisation]:
    """The GPUs that belong to workers on which tasks ran."""
    return [gpu for gpu in run.gpus if gpu.device.workers and gpu.tasks_ran[0] >= _RAN]


def _device(run: RunFigures, gpu: GpuUtilisation) -> dict[str, Any]:
    index = gpu.device.index
    named = "<NA>" if np.isnan(index) else str(int(index))
    return {"gpu": named, "host": gpu.device.host, "worker": _worker(run, gpu)}


def _worker(run: RunFigures, gpu: GpuUtilisation) -> str | None:
    """The first worker whose device it is."""
    numbers = gpu.device.workers
    return run.workers.titles()[numbers[0]] if numbers else None
