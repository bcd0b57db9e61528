"""Rules about GPUs: idle or unused while their workers compute, or with full memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dasfprof.analysis.diagnosis.registry import Finding, rule
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.model.gpus import GpuDevice
from dasfprof.analysis.wording import Bytes, Count, Seconds, Share

#: Threshold: a device counts as idle from this fraction of the time in which its workers run tasks.
_IDLE = 0.5
#: Minimum percentage of the run in which the device's workers run tasks.
_RAN = 20.0
#: Threshold (percent): a device whose utilization never reaches this counts as unused.
_USED = 5.0
#: Threshold (fraction of the device's memory): the memory is nearly full.
_FULL = 0.92


@rule("gpu-idle")
def gpu_idle(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs that were idle or unused while their workers ran tasks."""
    devices, gpus = run.gpus
    ran, idle = (gpus[f"{what} (%)"].to_numpy() for what in ("Tasks Ran", "Idle While Tasks Ran"))
    most = gpus["Max GPU Utilization (%)"].to_numpy()
    percent = gpus["Time (s)"].to_numpy() / 100  # In seconds.
    owned = np.array([bool(device.workers) for device in devices], dtype=bool) & (ran >= _RAN)
    unused = np.flatnonzero(owned & (most < _USED))
    idle_ones = np.flatnonzero(owned & (most >= _USED) & (idle >= _IDLE * ran))
    if len(idle_ones):
        worst = idle_ones[np.argmax((idle * percent)[idle_ones])]
        yield Finding.of(
            "GPUs are idle while their workers compute: GPU {gpu} of {host} is idle for {idle} of "
            "the time in which its workers run tasks.",
            "Its mean utilization over the run is {utilisation}. This affects {idle_devices} of "
            "{devices} devices. See per_gpu_utilisation() and per_function_bottleneck().",
            "Move the tasks that run on the CPU to the GPU, or to workers without a GPU. Give "
            "the GPU larger chunks, so that kernels take longer than their launch, and keep data "
            "on the device between tasks.",
            **_device(run, devices[worst]),
            idle=Share(idle[worst] / ran[worst]),
            utilisation=Share(gpus["Mean GPU Utilization (%)"][worst] / 100),
            idle_devices=Count(len(idle_ones)),
            devices=Count(len(devices)),
            costs=float(idle[worst] * percent[worst]),
            at_most="medium",
        )
    if len(unused):
        yield Finding.of(
            "{unused} of the {devices} GPUs of the workers were used by no task.",
            "The workers with these GPUs ran tasks for up to {tasks_ran}. See "
            "per_gpu_utilisation().",
            "Run these tasks on workers without a GPU, or use libraries that compute on the GPU "
            "(CuPy, cuDF: "
            'dask.config.set({{"array.backend": "cupy", "dataframe.backend": "cudf"}})).',
            worker=_worker(run, devices[unused[0]]),
            unused=Count(len(unused)),
            devices=Count(len(devices)),
            tasks_ran=Seconds((ran * percent)[unused].max()),
            severity="low",
        )


@rule("gpu-memory-full")
def gpu_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs whose memory is nearly full."""
    devices, gpus = run.gpus
    most, total = gpus["Max GPU Memory Used (GB)"], gpus["GPU Memory (GB)"]
    used = (most / total).to_numpy()
    if not (used >= _FULL).any():
        return
    worst = int(np.nan_to_num(used).argmax())
    yield Finding.of(
        "The memory of GPU {gpu} of {host} was nearly full: {used} of {total} were used.",
        f"{{full_devices}} of {{devices}} devices used {Share(_FULL)} or more of their memory. "
        "To see when, call per_gpu_utilisation(1.0).",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and use an RMM pool (rmm_pool_size=0.9) to avoid fragmentation. "
        "If your program already has a pool that allocates all memory at its start, ignore this "
        "finding.",
        **_device(run, devices[worst]),
        used=Bytes(most[worst] * 1e9),
        total=Bytes(total[worst] * 1e9),
        full_devices=Count((used >= _FULL).sum()),
        devices=Count(len(used)),
        severity="medium",
    )


def _device(run: RunFigures, device: GpuDevice) -> dict[str, Any]:
    index = device.index
    named = "<NA>" if np.isnan(index) else str(int(index))
    return {"gpu": named, "host": device.host, "worker": _worker(run, device)}


def _worker(run: RunFigures, device: GpuDevice) -> str | None:
    """Return the label of the first worker that uses a device, or None if no worker uses it."""
    numbers = device.workers
    return run.workers.titles()[numbers[0]] if numbers else None
