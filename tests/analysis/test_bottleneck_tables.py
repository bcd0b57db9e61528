"""The tables of functions, tasks and tasks in memory against tables computed by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from traces import Plugin, compute, managed, record, row, usage, write_as_dasf

from dasfprof import TraceAnalyser
from dasfprof.analysis.tables import imbalance, task_bottleneck
from dasfprof.schema.events import Event
from dasfprof.schema.resources import GPU_DEVICES, GPU_USAGE, MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, RESULT_SERIALISED, WORKER_REMOVED

Write = Callable[[Path, Sequence[Event]], Path]

# fmt: off
FUNCTION_COLUMNS = [
    "Host", "GPU", "Function", "Duration (s)", "Percentage of total time (%)",
    "Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)", "Mean Data Size (MB)",
    "Mean Throughput (MB/s)", "Num Tasks (chunks)", "Mean Task time (s)", "Worker", "Failed Tasks",
    "CPU (s)", "Waiting for CPU (s)", "Waiting for storage (s)", "Blocked (s)",
    "Deserialising (s)", "Serialising (s)", "Garbage Collection (s)",
]
TASK_COLUMNS = [
    "Host", "GPU", "Task Key", "Duration (s)", "Percentage of total time (%)", "Memory usage (Mb)",
    "Worker", "Function", "Run ID", "State", "Start (s)", "GPU Samples",
    "Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)", "CPU (s)", "Waiting for CPU (s)",
    "Waiting for storage (s)", "Blocked (s)",
]
# fmt: on
A, B = "1a" * 16, "2b" * 16
W0, W1 = "worker-c096-0", "worker-c096-1"
TUTORIAL: list[Event] = [
    usage(3801.0, time=3801.0 + 1692107512.5, gpu_utilization=50, gpu_memory_used=2_000_000_000),
    compute(f"('load-{A}', 0)", 3800.0, 2.0, W0, size=4_000_000),
    compute(f"('load-{A}', 1)", 3800.0, 1.0, W1, size=2_000_000),
    compute(f"('sum-{B}', 0)", 3802.0, 1.0, W0, size=8, dependencies=[f"('load-{A}', 0)"]),
]


@pytest.fixture(params=[record, write_as_dasf])
def write(request: pytest.FixtureRequest) -> Write:
    """Write the same events in dasfprof's format and in DASF's."""
    chosen: Write = request.param
    return chosen


def test_what_threads_did_in_functions(tmp_path: Path) -> None:
    def ran(key: str, **values: Any) -> tuple[Any, ...]:
        return row(COMPUTE, key=key, timestamp=1.7e9, duration=8.0, state="memory", **values)

    rows = [
        ran("load-1", cpu=2.0, run_queue=1.0, storage=2.0),
        ran(
            "load-2", cpu=7.0, run_queue=2.0, storage=1.0
        ),  # more than the duration, by another clock
        ran("load-3", cpu=4.0, run_queue=None, storage=1.0),  # a system without CPU wait
        ran("look-1", cpu=1.0, run_queue=0.0),  # a file without storage times
        ran("nap-1", cpu=None, run_queue=None),  # a coroutine
    ]
    Plugin(tmp_path).write((COMPUTE, rows))
    analyser = TraceAnalyser(tmp_path)
    labels = FUNCTION_COLUMNS[-7:-3]
    of_tasks = analyser.per_task_bottleneck().set_index("Task Key")[labels]
    assert of_tasks.loc["load-1"].tolist() == [2.0, 1.0, 2.0, 3.0]
    assert of_tasks.loc["load-2"].tolist() == [7.0, 1.0, 0.0, 0.0]
    assert of_tasks.loc["load-3"].fillna(-1).tolist() == [4.0, -1, -1, -1]
    assert of_tasks.loc["look-1"].fillna(-1).tolist() == [1.0, 0.0, -1, 7.0]
    assert of_tasks.loc["nap-1"].isna().all()
    of_functions = analyser.per_function_bottleneck().set_index("Function")[labels]
    assert of_functions.loc["load"].tolist() == [13.0, 2.0, 2.0, 3.0]
    assert of_functions.loc["nap"].isna().all()


@pytest.mark.parametrize("known", [True, False])
def test_what_was_serialised(known: bool, tmp_path: Path) -> None:
    """Each attempt has the serialization on its worker; other serialization is not counted."""
    told = ("load-1", 1, 1.0), ("load-1", 1, 2.0), ("scattered", -1, 4.0)
    serialised = [
        row(RESULT_SERIALISED, timestamp=1.7e9, key=key, run_id=run_id, seconds=seconds)
        for key, run_id, seconds in told
    ]
    for host, keys in ("n1", {"load-1": 1, "load-2": 2, "sum-1": 4}), ("n2", {"load-3": 6}):
        runs = [
            row(COMPUTE, timestamp=1.7e9, duration=8.0, key=key, run_id=run_id, state="memory")
            for key, run_id in keys.items()
        ]
        more = [(RESULT_SERIALISED, serialised)] if known and host == "n1" else []
        address = f"tcp://{host}:4000"
        Plugin(tmp_path, host=host, address=address, serialising=known).write(
            (COMPUTE, runs), *more
        )
    table = TraceAnalyser(tmp_path).per_function_bottleneck()
    seconds = table.set_index(["Host", "Function"])["Serialising (s)"]
    if known:
        assert seconds["n1"].to_dict() == {"load": 3.0, "sum": 0.0}
        assert seconds["n2"].to_dict() == {"load": 0.0}
    else:
        assert seconds.isna().all()


def test_inputs_of_unknown_size_are_not_zero(tmp_path: Path, write: Write) -> None:
    events = [
        compute("known-1", 0.0, 1.0, W0, size=2_000_000),
        compute("f-1", 1.0, 1.0, W0, dependencies=["known-1", "scattered-1"]),
        compute("f-2", 2.0, 3.0, W0, dependencies=["known-1"]),
        compute("g-1", 5.0, 1.0, W0, dependencies=["scattered-1"]),
    ]
    analyser = TraceAnalyser(write(tmp_path / "run", events))
    table = analyser.per_function_bottleneck().set_index("Function")
    # Means include only task runs with known inputs: f-2 read 2 MB in 3 s.
    assert table.loc["f", "Mean Data Size (MB)"] == 2.0
    assert table.loc["f", "Mean Throughput (MB/s)"] == pytest.approx(2 / 3)
    assert np.isnan(table.loc["g", "Mean Data Size (MB)"])
    assert np.isnan(table.loc["g", "Mean Throughput (MB/s)"])
    assert "2 task runs have inputs of unknown size" in " ".join(map(str, analyser.trace.notes))


def test_gpu_columns_without_samples_are_na_and_a_note_says_why(
    tmp_path: Path, write: Write
) -> None:
    events = [compute("f-1", 0.0, 1.0, W0), compute("f-2", 1.0, 1.0, W0)]
    analyser = TraceAnalyser(write(tmp_path / "run", events))
    table = analyser.per_function_bottleneck()
    gpu_columns = ["GPU", "Mean GPU Utilization (%)", "Mean GPU Memory Used (GB)"]
    assert table[gpu_columns].isna().all(axis=None)
    assert analyser.per_task_bottleneck()["GPU"].isna().all()
    assert "no-samples" in {note.kind for note in analyser.trace.notes}


def test_samples_of_workers_are_theirs_alone(tmp_path: Path) -> None:
    for name, gpu, utilization in ((0, 3, 20.0), (1, 1, 50.0)):
        worker = {"name": name, "address": f"tcp://10.0.0.1:400{name}"}
        run = row(COMPUTE, timestamp=1.7e9, duration=1.0, key="f-1", state="memory")
        Plugin(tmp_path, **worker).write((COMPUTE, [run]))
        facts = {"gpu_index": gpu, "gpu_memory_used": 2e9}
        samples = [
            row(RESOURCE_USAGE, timestamp=at, time=at, gpu_utilization=percent, **facts)
            for at, percent in ((1.7e9 - 1, utilization - 10), (1.7e9 + 0.5, utilization + 5))
        ]
        Plugin(tmp_path, "ResourceMonitor", **worker).write((RESOURCE_USAGE, samples))
    table = TraceAnalyser(tmp_path).per_function_bottleneck()
    # Each sample covers half a second: (10 + 25) / 2 and (40 + 55) / 2.
    assert table["Worker"].tolist() == ["worker-node1-0", "worker-node1-1"]
    assert table["GPU"].tolist() == [3, 1]
    assert table["Mean GPU Utilization (%)"].tolist() == [17.5, 47.5]
    assert table["Mean GPU Memory Used (GB)"].tolist() == [2.0, 2.0]


def test_a_device_may_be_read_by_another_worker(tmp_path: Path) -> None:
    start = 1.7e9
    told = ("GPU-x", 5, 0.0, 30.0), ("GPU-y", 6, 0.0, 99.0), ("GPU-x", 5, 0.5, 50.0)
    readings = [
        row(GPU_USAGE, timestamp=start + at, uuid=uuid, index=index, utilization=percent)
        for uuid, index, at, percent in told
    ]
    devices = row(GPU_DEVICES, timestamp=start, availability="available", uuid="GPU-x", index=5)
    run = row(COMPUTE, timestamp=start, duration=1.0, key="f-1", state="memory")
    for name in (0, 1):
        worker = {"name": name, "address": f"tcp://10.0.0.1:400{name}"}
        Plugin(tmp_path, **worker).write((COMPUTE, [run]))
        read = (GPU_USAGE, readings if name == 0 else [])
        Plugin(tmp_path, "ResourceMonitor", **worker).write((GPU_DEVICES, [devices]), read)
    table = TraceAnalyser(tmp_path).per_function_bottleneck()
    assert table["GPU"].tolist() == [5, 5]
    assert table["Mean GPU Utilization (%)"].tolist() == [40.0, 40.0]
    assert table["Mean GPU Memory Used (GB)"].isna().all()


def test_a_run_without_tasks_has_the_right_columns(tmp_path: Path) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [managed(1.0, W0, 0)]))
    full = TraceAnalyser(record(tmp_path / "full", TUTORIAL))
    columns = {"per_function_bottleneck": FUNCTION_COLUMNS, "per_task_bottleneck": TASK_COLUMNS}
    for method, expected in columns.items():
        empty, filled = getattr(analyser, method)(), getattr(full, method)()
        assert list(empty) == list(filled) == expected and not len(empty)
        assert empty.dtypes.to_dict() == filled.dtypes.to_dict()


def test_large_tables_have_categories(tmp_path: Path, write: Write, monkeypatch: Any) -> None:
    analyser = TraceAnalyser(write(tmp_path / "run", TUTORIAL))
    plain = analyser.per_task_bottleneck()
    monkeypatch.setattr(task_bottleneck, "_LARGE", 0)
    large = analyser.per_task_bottleneck()
    assert large.dtypes[["Host", "Worker", "Function", "State"]].eq("category").all()
    assert_frame_equal(large.astype(plain.dtypes.to_dict()), plain)


def test_a_second_is_a_second_in_floating_point(tmp_path: Path) -> None:
    assert 128.2 - 127.2 < 1
    events = [managed(127.2, W0, 2), managed(128.2, W0, 3)]
    balance = TraceAnalyser(record(tmp_path / "run", events)).per_worker_task_balance()
    assert balance[W0].tolist() == [2.0, 3.0]


def test_a_worker_that_left_holds_nothing_until_it_is_back(tmp_path: Path) -> None:
    def life(address: str, counts: dict[float, int], name: int = 0) -> None:
        plugin = Plugin(tmp_path / "run", "ResourceMonitor", name=name, address=address)
        rows = [row(MANAGED_MEMORY, timestamp=1.7e9 + t, tasks=n) for t, n in counts.items()]
        plugin.write((MANAGED_MEMORY, rows))

    life("tcp://10.0.0.1:4001", {0.0: 5})
    life("tcp://10.0.0.1:4002", {3.5: 2, 6.0: 3})  # the nanny restarted it with the same name
    life("tcp://10.0.0.1:4003", {0.0: 1, 5.0: 4}, name=1)
    # Two workers leave at the end of the run, and their results count in the table.
    removed = [
        row(WORKER_REMOVED, timestamp=1.7e9 + at, worker=f"tcp://10.0.0.1:400{n}", reason="close")
        for n, at in ((1, 1.5), (2, 6.25), (3, 6.25))
    ]
    Plugin(tmp_path / "run", "SchedulerPlugin").write((WORKER_REMOVED, removed))
    balance = TraceAnalyser(tmp_path / "run").per_worker_task_balance()
    assert balance["worker-node1-0"].tolist() == [5, 0, 0, 2, 2, 2, 3]
    assert balance["worker-node1-1"].tolist() == [1, 1, 1, 1, 1, 4, 4]


def test_times_far_apart_do_not_fill_the_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(imbalance, "MAX_CELLS", 10)
    events = [managed(0.0, W0, 1), managed(4.5, W0, 2), managed(1e11, W0, 3)]
    balance = TraceAnalyser(record(tmp_path / "run", events)).per_worker_task_balance()
    assert balance["Time Interval (seconds from begin)"].tolist() == [0, 4, 10**11]
    assert balance[W0].tolist() == [1.0, 2.0, 3.0]
