"""What workers had on their GPUs is told by worker, at the fullest moment, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from traces import Plan, Plugin, T, Task, row

from dasfprof import TraceAnalyser
from dasfprof.schema.resources import DEVICE_MEMORY, GPU_DEVICES, GPU_USAGE, RESOURCE_USAGE

MB = 1_000_000


def held(second: float, device: int, host: int, moved: int) -> tuple[Any, ...]:
    counted = {name: 0 for name, codec in DEVICE_MEMORY.args if codec in ("float", "time", "int")}
    facts = {"device_size": device * MB, "host_size": host * MB, "disk_tasks": 3}
    moves = {"device_to_host_size": moved * MB, "host_to_device_size": 2 * MB}
    return row(DEVICE_MEMORY, timestamp=T + second, **{**counted, **facts, **moves})


def written(directory: Path) -> TraceAnalyser:
    """Two workers; the first one's device is read, the second one's is not."""
    about = {"uuid": "GPU-x", "index": 1, "memory_total": 1000 * MB}
    used = {0.0: 100, 2.0: 700, 4.0: 300}
    first, second = (
        Plugin(directory, "ResourceMonitor", name=name, address=f"tcp://1:400{name}")
        for name in range(2)
    )
    first.write(
        (
            GPU_DEVICES,
            [row(GPU_DEVICES, timestamp=T, availability="available", uuid="GPU-x", index=1)],
        ),
        (
            GPU_USAGE,
            [
                row(GPU_USAGE, timestamp=T + at, memory_used=size * MB, **about)
                for at, size in used.items()
            ],
        ),
        (DEVICE_MEMORY, [held(0.1, 10, 0, 0), held(2.3, 400, 50, 60), held(4.0, 450, 80, 90)]),
        (
            RESOURCE_USAGE,
            [
                row(RESOURCE_USAGE, timestamp=T + at, time=T + at, gpu_process_memory=size * MB)
                for at, size in ((0.0, 90), (2.0, 650), (4.0, 200))
            ],
        ),
    )
    second.write((DEVICE_MEMORY, [held(1.0, 20, 5, 0), held(3.0, 30, 6, 7), held(5.0, 25, 8, 9)]))
    return TraceAnalyser(directory, progress=False)


def test_the_fullest_moment_of_each_worker(tmp_path: Path) -> None:
    table = written(tmp_path).gpu_memory().set_index("Worker")
    told = table.loc["worker-node1-0"]
    assert (told["GPU"], told["Time (s)"]) == (1, 2.0)
    assert (told["In Use (MB)"], told["Of (MB)"], told["Own Process (MB)"]) == (700, 1000, 650)
    # The sample nearest to that.
    assert (told["Results There (MB)"], told["Results in Host Memory (MB)"]) == (400, 50)
    assert told["Results on Disk"] == 3
    assert (told["Moved Out (MB)"], told["Moved Back (MB)"], told["To Disk (MB)"]) == (90, 2, 0)
    other = table.loc["worker-node1-1"]
    assert other[["GPU", "Time (s)", "In Use (MB)", "Own Process (MB)"]].isna().all()
    assert (other["Results There (MB)"], other["Results in Host Memory (MB)"]) == (30, 6)
    assert other["Moved Out (MB)"] == 9


def test_a_run_without_gpus_has_no_rows(tmp_path: Path) -> None:
    table = Plan([Task("a-1", 0, 0.0, 1.0)]).write(tmp_path).gpu_memory()
    assert table.empty and pd.api.types.is_float_dtype(table["In Use (MB)"])
