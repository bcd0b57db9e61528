"""Rules about GPUs: idle though their workers compute, or full."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dasfprof.analysis.diagnosis.findings import Finding
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.diagnosis.units import duration, percent

#: The share of the time in which tasks ran on a device's workers for which it idled.
_IDLE = 0.5
#: The share of the run for which tasks have to run there.
_RAN = 20.0
#: A device that was never busier than this, in percent, is not used at all.
_USED = 5.0
_FULL = 0.92


def gpu_idle(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs that idle while their workers compute."""
    table = run.gpus
    ran, idle = table["Tasks Ran (%)"], table["Idle While Tasks Ran (%)"]
    owned = (
        table["Workers"].astype(bool) & (ran >= _RAN) & (table["Max GPU Utilization (%)"] >= _USED)
    )
    found = table[owned & (idle >= _IDLE * ran)]
    if not len(found):
        return
    seconds = found["Idle While Tasks Ran (%)"] / 100 * found["Time (s)"]
    worst = found.iloc[int(seconds.to_numpy().argmax())]
    share = worst["Idle While Tasks Ran (%)"] / worst["Tasks Ran (%)"]
    yield Finding(
        f"GPUs idle while their workers compute: GPU {worst['GPU']} of {worst['Host']} for "
        f"{percent(share)} of the time in which tasks run there.",
        f"{len(found)} of {len(table)} devices; mean utilisation there "
        f"{worst['Mean GPU Utilization (%)']:.0f} %. See per_gpu_utilisation() and "
        "per_function_bottleneck().",
        "Move the tasks that run on the CPU to the GPU, or onto workers without one; feed it "
        "larger chunks, so that kernels take longer than their launch; and keep data on the "
        "device between tasks.",
        seconds=float(seconds.max()),
        at_most="medium",
        worker=str(worst["Workers"]).split(", ", maxsplit=1)[0],
    )


def gpu_memory_full(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs whose memory is nearly full."""
    table = run.gpus
    used = table["Max GPU Memory Used (GB)"] / table["GPU Memory (GB)"]
    if not (used >= _FULL).any():
        return
    worst = table.iloc[int(np.nan_to_num(used.to_numpy(dtype=float)).argmax())]
    yield Finding(
        f"The memory of GPU {worst['GPU']} of {worst['Host']} was nearly full: "
        f"{worst['Max GPU Memory Used (GB)']:.3g} of {worst['GPU Memory (GB)']:.3g} GB.",
        f"{int((used >= _FULL).sum())} of {len(table)} devices used {percent(_FULL)} or more. See "
        "per_gpu_utilisation(1.0) for when.",
        "Use smaller chunks, let dask-cuda spill to the host (device_memory_limit=0.8, or "
        "enable_cudf_spill=True), and an RMM pool (rmm_pool_size=0.9) against fragmentation. A "
        "pool that takes all memory by itself looks like this too.",
        at_least="medium",
        at_most="medium",
        worker=str(worst["Workers"]).split(", ", maxsplit=1)[0] or None,
    )


def gpu_unused(run: RunFigures) -> Iterator[Finding]:
    """Find GPUs of workers that no task used."""
    table = run.gpus
    found = table[
        table["Workers"].astype(bool)
        & (table["Tasks Ran (%)"] >= _RAN)
        & (table["Max GPU Utilization (%)"] < _USED)
    ]
    if not len(found):
        return
    seconds = float((found["Tasks Ran (%)"] / 100 * found["Time (s)"]).max())
    yield Finding(
        f"{len(found)} of {len(table)} GPUs that workers have were not used by any task.",
        f"Tasks ran on their workers for up to {duration(seconds)}. See per_gpu_utilisation().",
        "Run this part on workers without a GPU, or use libraries that compute there (CuPy, cuDF: "
        'dask.config.set({"array.backend": "cupy", "dataframe.backend": "cudf"})).',
        at_most="low",
        at_least="low",
        worker=str(found.iloc[0]["Workers"]).split(", ", maxsplit=1)[0],
    )
