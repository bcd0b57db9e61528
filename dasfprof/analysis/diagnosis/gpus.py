"""Rules about GPUs: idle or unused while their workers compute, or with full memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.gpus import GpuUtilisation
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share

#: Threshold (fraction of the time for which the device's workers run tasks): the device is idle.
_IDLE = 0.5
#: Threshold (percent of the run): the device's workers run tasks.
_RAN = 20.0
#: Threshold (percent of utilization): a device that never reaches it counts as unused.
_USED = 5.0
#: Threshold (fraction of the device's memory): the memory is nearly full.
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
            "GPUs are idle while their workers compute: GPU {gpu} of {host} is idle for {idle} of "
            "the time in which its workers run tasks.",
            "Its mean utilization over the run is {utilisation}. This affects {idle_devices} of "
            "{devices} devices. See per_gpu_utilisation() and per_function_bottleneck().",
            "Move the tasks that run on the CPU to the GPU, or to workers without a GPU. Give "
            "the GPU larger chunks, so that kernels take longer than their launch, and keep data "
            "on the device between tasks.",
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
            "No task used {unused} of the {devices} GPUs of the workers.",
            "The workers with these GPUs ran tasks for up to {tasks_ran}. See "
            "per_gpu_utilisation().",
            "Run this part on workers without a GPU, or use libraries that compute on the GPU "
            "(CuPy, cuDF: "
            'dask.config.set({{"array.backend": "cupy", "dataframe.backend": "cudf"}})).',
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
        "The memory of GPU {gpu} of {host} was nearly full: {used} of {total} were used.",
        f"{{full_devices}} of {{devices}} devices used {Share(_FULL)} or more of their memory. "
        "To see when, call per_gpu_utilisation(1.0).",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and use an RMM pool (rmm_pool_size=0.9) to avoid fragmentation. "
        "If your program already has a pool that allocates all memory at its start, ignore this "
        "finding.",
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
    """Return the first worker that uses a device, or None if no worker uses it."""
    numbers = gpu.device.workers
    return run.workers.titles()[numbers[0]] if numbers else None
