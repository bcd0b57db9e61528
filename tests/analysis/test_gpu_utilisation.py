"""GPU columns of tables, and results on workers' GPUs, calculated by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plan, Plugin, Task, compute, record, row, usage

from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError
from dasfprof.schema.resources import (
    DEVICE_MEMORY,
    GPU_DEVICES,
    GPU_FAILURE,
    GPU_USAGE,
    RESOURCE_USAGE,
)
from dasfprof.schema.tasks import COMPUTE

T, MB = 1_700_000_000.0, 1_000_000
#: Unknown facts about transferred results are 0.
NUMBERS = ("float", "time", "int")
UNMOVED = {name: 0 for name, codec in DEVICE_MEMORY.args if codec in NUMBERS}


def reading(uuid: str, second: float, utilization: float | None, **values: Any) -> tuple[Any, ...]:
    about = {"name": "Stand-in", "memory_total": 10e9, "memory_used": 1e9, **values}
    about |= {"uuid": uuid, "index": "xyz".index(uuid[-1])}
    return row(GPU_USAGE, timestamp=T + second, utilization=utilization, **about)


def moved(second: float, size: float, seconds: float) -> tuple[Any, ...]:
    facts = {"device_to_host": seconds, "device_to_host_size": size, "device_to_host_count": 1}
    return row(DEVICE_MEMORY, timestamp=T + second, **{**UNMOVED, **facts})


def test_devices_of_several_hosts_keep_their_readings(tmp_path: Path) -> None:
    """Both hosts read their devices at the same times, so their samples alternate."""
    readings = [(float(second), {"utilization": 10 * second}) for second in range(5)]
    tasks = [Task(f"a-{worker}", worker, 0.0, 4.0) for worker in (0, 1)]
    Plan(tasks, hosts=["here", "there"], gpu=readings).write_files(tmp_path)
    table = TraceAnalyser(tmp_path, progress=False).per_gpu_utilisation()
    assert table[["Host", "UUID", "Samples"]].to_numpy().tolist() == [
        ["here", "GPU-0", 5],
        ["there", "GPU-1", 5],
    ]


def ran(key: str, start: float, stop: float) -> tuple[Any, ...]:
    return row(COMPUTE, timestamp=T + start, duration=stop - start, key=key, state="memory")


def devices(uuid: str) -> tuple[Any, ...]:
    about = {"uuid": uuid, "index": "xyz".index(uuid[-1])}
    return row(GPU_DEVICES, timestamp=T, availability="available", **about)


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Write a run of eight seconds. Workers 0 and 2 share GPU 0, and worker 1 has GPU 1.

    Worker 0 reads GPU 0 and GPU 2, which no worker has, every second. GPU 1, which its worker
    reads, is lost after 4 s.
    """
    first, unused = [], [reading("GPU-z", at, 0.0) for at in range(9)]
    more = {"power": 100.0, "sm_clock": 1500.0, "memory_clock": 800.0, "pcie_rx": 3e6}
    for at, percent in enumerate([50, 50, 100, 0, 0, 0, 20, 20, 20]):
        facts = {"memory_used": (at + 1) * 1e9, "temperature": 40.0 + at, "pcie_tx": at * 1e6}
        first.append(reading("GPU-x", at, percent, **facts, **more))
    moves = [moved(1.0, 1e9, 0.25), moved(3.0, 4e9, 1.0), moved(7.0, 6e9, 1.5)]
    runs = [
        [ran("a-1", 0.0, 2.0), ran("short-1", 2.25, 2.5)],
        [ran("a-3", 3.0, 8.0)],
        [ran("a-2", 1.0, 4.0), ran("b-2", 5.5, 6.0)],
    ]
    told = [
        [(GPU_USAGE, first + unused), (DEVICE_MEMORY, moves)],
        [(GPU_USAGE, [reading("GPU-y", at, 80.0) for at in range(4)])],
        [(DEVICE_MEMORY, [moved(2.0, 2e9, 0.5)])],
    ]
    directory = tmp_path_factory.mktemp("gpus")
    for name, uuid in enumerate(("GPU-x", "GPU-y", "GPU-x")):
        worker = {"name": name, "address": f"tcp://1:400{name}"}
        Plugin(directory, **worker).write((COMPUTE, runs[name]))
        samples = (GPU_DEVICES, [devices(uuid)]), *told[name]
        Plugin(directory, "ResourceMonitor", **worker).write(*samples)
    return TraceAnalyser(directory)


def test_devices_in_total(two_gpus: TraceAnalyser) -> None:
    table = two_gpus.per_gpu_utilisation()
    assert table["GPU"].tolist() == [0, 1, 2]
    assert table["UUID"].tolist() == ["GPU-x", "GPU-y", "GPU-z"]
    workers = "worker-node1-0, worker-node1-2", "worker-node1-1", ""
    assert table["Workers"].tolist() == list(workers)
    # GPU 1 was last read at 3 s. Its samples are a second apart, so the last one holds until 6 s.
    assert table["Time (s)"].tolist() == [8.0, 6.0, 8.0]
    # GPU 0: 50 50 100 0 0 0 20 20 % in the eight seconds.
    assert table["Mean GPU Utilization (%)"].tolist() == [240 / 8, 80.0, 0.0]
    assert table["Max GPU Utilization (%)"].tolist() == [100.0, 80.0, 0.0]
    assert table["Mean GPU Memory Used (GB)"].tolist() == [4.5, 1.0, 1.0]
    assert table["Max GPU Memory Used (GB)"].tolist() == [8.0, 1.0, 1.0]
    assert table["GPU Memory (GB)"].tolist() == [10.0, 10.0, 10.0]
    assert table["Mean Power (W)"].tolist()[0] == 100.0
    assert table["Mean Power (W)"].isna().tolist() == [False, True, True]
    clocks = table[["Mean SM Clock (MHz)", "Mean Memory Clock (MHz)", "Max Temperature (C)"]]
    assert clocks.iloc[0].tolist() == [1500.0, 800.0, 47.0]
    # 0 to 7 MB in the eight seconds.
    assert table.loc[0, ["Mean PCIe Sent (MB/s)", "Mean PCIe Received (MB/s)"]].tolist() == [
        pytest.approx(3.5, rel=1e-4),  # counted in 32 bits
        3.0,
    ]
    # 6 GB and 2 GB of its two workers, of each as much as it had moved in all.
    moves = ["GPU to Host (GB)", "Host to GPU (GB)", "Moving Results (s)"]
    assert table.loc[0, moves].tolist() == [8.0, 0.0, 2.0]
    assert table.loc[1:, moves].isna().all(axis=None)
    # Tasks ran on GPU 0's workers from 0 to 4 and from 5.5 to 6, on GPU 1's from 3 to 8.
    assert table["Tasks Ran (%)"].tolist() == [4.5 / 8 * 100, 3 / 6 * 100, 0.0]
    # It was idle for 50 50 0 100 % of the first four seconds, for the whole half second, and then
    # for 1 s, 0.5 s, and 80 % of two.
    idle = [(0.5 + 0.5 + 0 + 1 + 0.5) / 8, 3 * 0.2 / 6, 0.0]
    assert table["Idle While Tasks Ran (%)"].tolist() == pytest.approx([100 * x for x in idle])
    rest = [(1 + 0.5 + 2 * 0.8) / 8, 3 * 0.2 / 6, 1.0]
    assert table["Idle While No Task Ran (%)"].tolist() == pytest.approx([100 * x for x in rest])
    assert table["Samples"].tolist() == [9, 4, 9]


def test_the_shares_make_a_whole(two_gpus: TraceAnalyser) -> None:
    for table in (two_gpus.per_gpu_utilisation(), two_gpus.per_gpu_utilisation(interval=0.75)):
        shares = ["Mean GPU Utilization (%)", "Idle While Tasks Ran (%)"]
        whole = table[[*shares, "Idle While No Task Ran (%)"]].sum(axis=1)
        seen = table["Time (s)"] > 0
        assert whole[seen].tolist() == pytest.approx([100.0] * int(seen.sum()))
        assert table.loc[~seen, shares].isna().all(axis=None)


def test_devices_over_time(two_gpus: TraceAnalyser) -> None:
    table = two_gpus.per_gpu_utilisation(interval=3.0)
    begin = "Time Interval (seconds from begin)"
    assert table.groupby("GPU")[begin].apply(list).tolist() == [[0.0, 3.0, 6.0]] * 3
    first, second = table[table["GPU"] == 0], table[table["GPU"] == 1]
    # In the last interval, 6 to 9 s, the sample at 8 s covers the third second too.
    assert first["Mean GPU Utilization (%)"].tolist() == pytest.approx([200 / 3, 0.0, 20.0])
    assert first["Tasks Ran (%)"].tolist() == pytest.approx([100.0, 50.0, 0.0])
    assert first["Samples"].tolist() == [3, 3, 3]
    assert second["Time (s)"].tolist() == [3.0, 3.0, 0.0]
    assert second["Mean GPU Utilization (%)"].isna().tolist() == [False, False, True]
    longer = two_gpus.per_gpu_utilisation(interval=4.0)
    first = longer[longer["UUID"] == "GPU-x"]
    assert first["GPU to Host (GB)"].tolist() == [4.0 + 2.0, 2.0]
    assert first["Moving Results (s)"].tolist() == [1.0 + 0.5, 0.5]


def test_means_of_functions_and_tasks(two_gpus: TraceAnalyser) -> None:
    """Functions have the means of their workers' devices, and tasks those of their samples."""
    table = two_gpus.per_function_bottleneck().set_index(["Worker", "Function"])
    means = table["Mean GPU Utilization (%)"]
    assert means["worker-node1-0", "a"] == 50.0
    assert means["worker-node1-2", "a"] == pytest.approx((50 + 100 + 0) / 3)
    # GPU 1 is unknown after 6 s, so the mean is that of the three seconds before.
    assert means["worker-node1-1", "a"] == pytest.approx(80.0)
    assert table["GPU"]["worker-node1-2", "a"] == 0
    assert table["GPU"]["worker-node1-1", "a"] == 1
    table = two_gpus.per_task_bottleneck().set_index("Task Key")
    assert table["GPU Samples"].to_dict() == {"a-1": 2, "a-2": 3, "a-3": 1, "b-2": 0, "short-1": 0}
    means = table[["Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)"]]
    assert means.loc["a-2"].tolist() == pytest.approx([50.0, (2 + 3 + 4) / 3])
    assert means.loc["a-3"].iloc[0] == pytest.approx(80.0)
    assert means.loc[["b-2", "short-1"]].isna().all(axis=None)


def test_notes_say_what_could_not_be_read(tmp_path: Path) -> None:
    told = {"power": "not supported", "temperature": "not supported"}
    told["utilization"] = "no permission"
    failures = [
        row(GPU_FAILURE, timestamp=T, uuid="GPU-x", reading=reading, reason=reason)
        for reading, reason in told.items()
    ]
    for name in range(2):  # two workers, one of which replaced the other
        plugin = Plugin(tmp_path, "ResourceMonitor", name=name, address=f"tcp://1:400{name}")
        usage = RESOURCE_USAGE, [row(RESOURCE_USAGE, timestamp=T)]
        plugin.write(usage, (GPU_DEVICES, [devices("GPU-x")]), (GPU_FAILURE, failures))
    notes = [note.text for note in TraceAnalyser(tmp_path).trace.notes if "GPU-x" in note.text]
    assert sorted(notes) == [
        "GPU-x: power, temperature not read: not supported.",
        "GPU-x: utilization not read: no permission.",
    ]


def test_dasf_samples_are_of_a_device_without_a_name(tmp_path: Path) -> None:
    events = [
        usage(T, gpu_utilization=40, gpu_memory_used=2_000_000_000),
        usage(T + 1, gpu_utilization=60, gpu_memory_used=2_000_000_000),
        compute("f-1", T, 2.0, "worker-c096-0"),
        compute("f-2", T + 1, 1.0, "worker-c096-1"),
    ]
    (found,) = (
        TraceAnalyser(record(tmp_path / "run", events)).per_gpu_utilisation().to_dict("records")
    )
    assert (found["Host"], found["Workers"]) == ("c096", "worker-c096-0, worker-c096-1")
    assert pd.isna(found["GPU"])
    assert found["Mean GPU Utilization (%)"] == 50.0
    assert found["Idle While Tasks Ran (%)"] == 50.0
    assert np.isnan(found["GPU Memory (GB)"])


def test_without_a_gpu_there_are_no_rows(tmp_path: Path) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [compute("f-1", T, 1.0, "worker-c096-0")]))
    table, tasks = analyser.per_gpu_utilisation(), analyser.per_task_bottleneck()
    assert table.empty
    assert "Mean GPU Utilization (%)" in table
    assert tasks[["GPU Samples", "Mean GPU Utilization (%)"]].isna().all(axis=None)
    for interval in (0, -1.0, float("nan")):
        with pytest.raises(InvalidArgumentError, match="above 0"):
            analyser.per_gpu_utilisation(interval)


def held(second: float, device: int, host: int, moved: int) -> tuple[Any, ...]:
    facts = {"device_size": device * MB, "host_size": host * MB, "disk_tasks": 3}
    facts |= {"device_to_host_size": moved * MB, "host_to_device_size": 2 * MB}
    return row(DEVICE_MEMORY, timestamp=T + second, **{**UNMOVED, **facts})


def with_results(directory: Path) -> TraceAnalyser:
    """Write a run of two workers; only the first one's device is sampled."""
    device = {"uuid": "GPU-x", "index": 1}
    devices = [row(GPU_DEVICES, timestamp=T, availability="available", **device)]
    device["memory_total"] = 1000 * MB
    in_use, used = [], []
    for at, of_all, own in ((0.0, 100, 90), (2.0, 700, 650), (4.0, 300, 200)):
        in_use.append(row(GPU_USAGE, timestamp=T + at, memory_used=of_all * MB, **device))
        facts = {"time": T + at, "gpu_process_memory": own * MB}
        used.append(row(RESOURCE_USAGE, timestamp=T + at, **facts))
    results = [held(0.1, 10, 0, 0), held(2.3, 400, 50, 60), held(4.0, 450, 80, 90)]
    read = (GPU_DEVICES, devices), (GPU_USAGE, in_use), (RESOURCE_USAGE, used)
    Plugin(directory, "ResourceMonitor", address="tcp://1:4000").write(
        *read, (DEVICE_MEMORY, results)
    )
    results = [held(1.0, 20, 5, 0), held(3.0, 30, 6, 7), held(5.0, 25, 8, 9)]
    second = Plugin(directory, "ResourceMonitor", name=1, address="tcp://1:4001")
    second.write((DEVICE_MEMORY, results))
    return TraceAnalyser(directory, progress=False)


def test_the_fullest_moment_of_each_worker(tmp_path: Path) -> None:
    table = with_results(tmp_path).gpu_memory().set_index("Worker")
    told = table.loc["worker-node1-0"]
    assert (told["GPU"], told["Time (s)"]) == (1, 2.0)
    assert (told["In Use (MB)"], told["Of (MB)"], told["Own Process (MB)"]) == (700, 1000, 650)
    # The nearest sample.
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
