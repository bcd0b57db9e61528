"""The memory of functions follows from samples, and is unknown if they are not sufficient."""

from pathlib import Path
from typing import Any

import numpy as np
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE
from dasfprof.schema.under_way import TASK_UNDER_WAY

MB = 1_000_000


def samples(directory: Path, memory: dict[float, float], **worker: Any) -> None:
    """Write samples of a process from MB by time."""
    rows = [
        row(RESOURCE_USAGE, timestamp=T + at, time=T + at, memory=int(held * MB))
        for at, held in memory.items()
    ]
    Plugin(directory, "ResourceMonitor", **worker).write((RESOURCE_USAGE, rows))


def runs(directory: Path, *tasks: tuple[str, float, float], begun: Any = (), **worker: Any) -> None:
    """Write task runs of a worker (key, start, stop), and unfinished ones with their starts."""
    done = [
        row(COMPUTE, timestamp=T + start, duration=stop - start, key=key, run_id=1, state="memory")
        for key, start, stop in tasks
    ]
    facts = {"run_id": 2, "state": "executing", "thread": "7", "waits_keys": []}
    under_way = [
        row(TASK_UNDER_WAY, timestamp=T + at + 1, since=T + at, key=f"open-{at}", **facts)
        for at in begun
    ]
    Plugin(directory, **worker).write((COMPUTE, done), (TASK_UNDER_WAY, under_way))


def answered(directory: Path) -> dict[str, tuple[Any, ...]]:
    table = TraceAnalyser(directory, progress=False).function_memory()
    columns = ("Task Runs", "Sampled", "Highest (MB)", "Alone", "Largest Rise (MB)")
    table = table.set_index("Function")[list(columns)]
    return {
        str(name): tuple(None if np.isnan(value) else round(float(value), 6) for value in values)
        for name, values in zip(table.index, table.to_numpy(dtype=float), strict=True)
    }


def test_against_values_by_hand(tmp_path: Path) -> None:
    held = {0: 100, 1: 100, 2: 300, 3: 500, 4: 150, 5: 160, 6: 400, 7: 160, 20: 200}
    samples(tmp_path, {**held, 30.5: 50, 31.5: 80, 32.5: 60})
    runs(
        tmp_path,
        ("load-1", 1.5, 3.5),  # 500, and 100 half a second before
        ("load-2", 3.6, 3.9),  # between two samples
        ("sum-1", 4.5, 6.5),  # 400, next to the other task run
        ("sum-2", 5.5, 6.2),
        ("mul-1", 6.6, 7.5),  # 160; the previous sample belongs to another task run
        ("late-1", 19.5, 20.5),  # 200; the previous sample is old
        ("grow-1", 30.0, 33.0),  # 80, and 50 in its first sample
    )
    assert answered(tmp_path) == {
        "load": (2, 1, 500, 1, 400),
        "sum": (2, 2, 400, 0, None),
        "mul": (1, 1, 160, 0, None),
        "late": (1, 1, 200, 0, None),
        "grow": (1, 1, 80, 1, 30),
    }
    table = TraceAnalyser(tmp_path, progress=False).function_memory()
    assert table["Function"].tolist() == ["load", "sum", "late", "mul", "grow"]
    assert table["Task Key"].tolist()[0] == "load-1"
    assert set(table["Worker"]) == {"worker-node1-0"}


def test_a_process_that_is_shared(tmp_path: Path) -> None:
    """Two workers in one process, and an unfinished task, run in parallel with others."""
    for number in (0, 1):
        worker = {"host": "node2", "name": number, "address": f"tcp://10.0.0.2:400{number}"}
        samples(tmp_path, {0: 10, 1: 30, 2: 20}, **worker)
        runs(tmp_path, (f"of{number}-1", 0.5, 1.5), **worker)
    samples(tmp_path, {0: 10, 1: 30, 2: 90, 3: 20}, host="node3", address="tcp://10.0.0.3:4000")
    three = {"host": "node3", "address": "tcp://10.0.0.3:4000"}
    runs(tmp_path, ("before-1", 0.5, 1.5), ("beside-1", 1.6, 2.5), begun=[1.55], **three)
    assert answered(tmp_path) == {
        "of0": (1, 1, 30, 0, None),
        "of1": (1, 1, 30, 0, None),
        "before": (1, 1, 30, 1, 20),
        "beside": (1, 1, 90, 0, None),
    }


def test_without_samples_nothing_is_told(tmp_path: Path) -> None:
    runs(tmp_path, ("load-1", 1.5, 3.5))
    assert answered(tmp_path) == {"load": (1, 0, None, 0, None)}
    table = TraceAnalyser(tmp_path, progress=False).function_memory()
    assert table[["Worker", "Task Key"]].values.tolist() == [["", ""]]
