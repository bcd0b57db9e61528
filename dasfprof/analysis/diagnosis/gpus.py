"""Rules about GPUs: idle though their workers compute, or full."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.registry import rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.gpu_utilisation import GpuUtilisation
from dasfprof.text import format_duration, format_share

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
    share = worst.idle_while_tasks_ran[0] / worst.tasks_ran[0]
    yield Finding(
        f"GPUs idle while their workers compute: GPU {_index(worst)} of {worst.device.host} for "
        f"{format_share(share)} of the time in which tasks run there.",
        f"{len(found)} of {len(run.gpus)} devices; mean utilisation there "
        f"{worst.mean_utilization[0]:.0f} %. See per_gpu_utilisation() and "
        "per_function_bottleneck().",
        "Move the tasks that run on the CPU to the GPU, or onto workers without one; feed it "
        "larger chunks, so that kernels take longer than their launch; and keep data on the "
        "device between tasks.",
        seconds=max(seconds),
        at_most="medium",
        worker=_worker(run, worst),
    )


@rule("gpu-memory-full")
def gpu_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs whose memory is nearly full."""
    used = np.array([gpu.max_memory[0] / gpu.memory_total[0] for gpu in run.gpus], dtype=float)
    if not (used >= _FULL).any():
        return
    worst = run.gpus[int(np.nan_to_num(used).argmax())]
    yield Finding(
        f"The memory of GPU {_index(worst)} of {worst.device.host} was nearly full: "
        f"{worst.max_memory[0] / 1e9:.3g} of {worst.memory_total[0] / 1e9:.3g} GB.",
        f"{int((used >= _FULL).sum())} of {len(used)} devices used {format_share(_FULL)} or more. "
        "See per_gpu_utilisation(1.0) for when.",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and an RMM pool (rmm_pool_size=0.9) against fragmentation. A "
        "pool that takes all memory by itself looks like this too.",
        at_least="medium",
        at_most="medium",
        worker=_worker(run, worst),
    )


@rule("gpu-unused")
def gpu_unused(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs of workers that no task used."""
    found = [gpu for gpu in _owned(run) if gpu.max_utilization[0] < _USED]
    if not found:
        return
    seconds = max(float(gpu.tasks_ran[0] / 100 * gpu.seconds[0]) for gpu in found)
    yield Finding(
        f"{len(found)} of {len(run.gpus)} GPUs that workers have were not used by any task.",
        f"Tasks ran on their workers for up to {format_duration(seconds)}. See "
        "per_gpu_utilisation().",
        "Run this part on workers without a GPU, or use libraries that compute there (CuPy, cuDF: "
        'dask.config.set({"array.backend": "cupy", "dataframe.backend": "cudf"})).',
        at_most="low",
        at_least="low",
        worker=_worker(run, found[0]),
    )


def _owned(run: RunFigures) -> list[GpuUtilisation]:
    """The GPUs that belong to workers on which tasks ran."""
    return [gpu for gpu in run.gpus if gpu.device.workers and gpu.tasks_ran[0] >= _RAN]


def _index(gpu: GpuUtilisation) -> str:
    index = gpu.device.index
    return "<NA>" if np.isnan(index) else str(int(index))


def _worker(run: RunFigures, gpu: GpuUtilisation) -> str | None:
    """The first worker whose device it is."""
    numbers = gpu.device.workers
    return run.workers.titles()[numbers[0]] if numbers else None
