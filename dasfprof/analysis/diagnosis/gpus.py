"""Rules about GPUs: idle or unused though their workers compute, or full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.gpus import GpuUtilisation
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share

#: Threshold (fraction of the time in which tasks ran on the device's workers): it was idle.
_IDLE = 0.5
#: Threshold (percent of the run): tasks ran on the device's workers.
_RAN = 20.0
#: Threshold (percent of utilisation): a device whose maximum is lower was not used at all.
_USED = 5.0
#: Threshold (fraction of the device's memory): it was nearly full.
_FULL = 0.92


@rule("gpu-idle")
def gpu_idle(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs that were idle or unused while their workers ran tasks."""
    owned = [gpu for gpu in run.gpus if gpu.device.workers and gpu.tasks_ran[0] >= _RAN]
    unused = [gpu for gpu in owned if gpu.max_utilization[0] < _USED]
    idle = [
        gpu
        for gpu in owned
        if gpu.max_utilization[0] >= _USED
        and gpu.idle_while_tasks_ran[0] >= _IDLE * gpu.tasks_ran[0]
    ]
    if idle:
        seconds = [float(gpu.idle_while_tasks_ran[0] / 100 * gpu.seconds[0]) for gpu in idle]
        worst = idle[int(np.argmax(seconds))]
        yield Finding.of(
            "gpu-idle",
            "GPUs idle while their workers compute: GPU {gpu} of {host} for {idle} of the time in "
            "which tasks run there.",
            "{idle_devices} of {devices} devices; mean utilisation there {utilisation}. See "
            "per_gpu_utilisation() and per_function_bottleneck().",
            "Move the tasks that run on the CPU to the GPU, or onto workers without one; feed it "
            "larger chunks, so that kernels take longer than their launch; and keep data on the "
            "device between tasks.",
            **_device(run, worst),
            idle=Share(worst.idle_while_tasks_ran[0] / worst.tasks_ran[0]),
            utilisation=Share(worst.mean_utilization[0] / 100),
            idle_devices=Count(len(idle)),
            devices=Count(len(run.gpus)),
            costs=max(seconds),
            at_most="medium",
        )
    if unused:
        yield Finding.of(
            "gpu-idle",
            "{unused} of {devices} GPUs that workers have were not used by any task.",
            "Tasks ran on their workers for up to {tasks_ran}. See per_gpu_utilisation().",
            "Run this part on workers without a GPU, or use libraries that compute there (CuPy, "
            'cuDF: dask.config.set({{"array.backend": "cupy", "dataframe.backend": "cudf"}})).',
            worker=_worker(run, unused[0]),
            unused=Count(len(unused)),
            devices=Count(len(run.gpus)),
            tasks_ran=Seconds(max(gpu.tasks_ran[0] / 100 * gpu.seconds[0] for gpu in unused)),
            severity="low",
        )


@rule("gpu-memory-full")
def gpu_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs whose memory is nearly full."""
    used = np.array([gpu.max_memory[0] / gpu.memory_total[0] for gpu in run.gpus], dtype=float)
    if not (used >= _FULL).any():
        return
    worst = run.gpus[int(np.nan_to_num(used).argmax())]
    yield Finding.of(
        "gpu-memory-full",
        "The memory of GPU {gpu} of {host} was nearly full: {used} of {total}.",
        f"{{full_devices}} of {{devices}} devices used {Share(_FULL)} or more. See "
        "per_gpu_utilisation(1.0) for when.",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and an RMM pool (rmm_pool_size=0.9) against fragmentation. A "
        "pool that takes all memory by itself looks like this too.",
        **_device(run, worst),
        used=Bytes(worst.max_memory[0]),
        total=Bytes(worst.memory_total[0]),
        full_devices=Count((used >= _FULL).sum()),
        devices=Count(len(used)),
        severity="medium",
    )


def _device(run: RunFigures, gpu: GpuUtilisation) -> dict[str, Any]:
    index = gpu.device.index
    named = "<NA>" if np.isnan(index) else str(int(index))
    return {"gpu": named, "host": gpu.device.host, "worker": _worker(run, gpu)}


def _worker(run: RunFigures, gpu: GpuUtilisation) -> str | None:
    """Return the first worker that uses a device, or None if no worker does."""
    numbers = gpu.device.workers
    return run.workers.titles()[numbers[0]] if numbers else None
