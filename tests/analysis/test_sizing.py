"""Chunk sizes for an overhead, and the overhead of task runs, calculated by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import Plugin, T, row

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.sizing import task_overhead
from dasfprof.schema.tasks import COMPUTE, TASK_RUN

A = "tcp://10.0.0.1:4000"


def ran(key: str, begin: float, end: float, **values: Any) -> tuple[Any, ...]:
    """Return a task run that holds its thread for 0.125 s before and after its function."""
    usual = {"state": "memory", "thread": 7, "disk_read": 0.0, "deserialize": 0.0}
    usual |= dict.fromkeys(("received", "ready"), T + begin - 0.25)
    usual |= {"executing": T + begin, "timestamp": T + begin + 0.125, "done": T + end}
    usual |= {"duration": end - begin - 0.25, "run_id": int(begin * 8)}
    return row(COMPUTE, key=key, **{**usual, **values})


def written(path: Path, *rows: tuple[Any, ...], **more: Any) -> TraceAnalyser:
    Plugin(path / "run", address=A).write((COMPUTE, rows))
    for plugin, facts in more.items():
        Plugin(path / "run", plugin).write(facts)
    return TraceAnalyser(path / "run")


def test_chunks_for_an_overhead(tmp_path: Path) -> None:
    """Consecutive tasks of 1 s hold their thread 0.25 s longer."""
    rows = [ran(f"f-{i}", 1.25 * i, 1.25 * i + 1.25, size=2_000_000) for i in range(8)]
    analyser = written(tmp_path, *rows)
    (found,) = analyser.chunk_sizing(0.05).to_dict("records")
    assert (found["Function"], found["Task Runs Then"]) == ("f", 2)
    expected = {"Mean Task time (s)": 1.0, "Overhead per Task (s)": 0.25, "Overhead (%)": 20.0}
    expected |= {"Wanted Task time (s)": 4.75, "Times Larger": 4.75}  # 0.25 of 5
    expected |= {"Chunk Size (MB)": 2.0, "Wanted Chunk Size (MB)": 9.5}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    # Two threads: four tasks for each of them.
    assert found["Advice"].startswith("Make chunks 4 times larger, but not more")
    (found,) = analyser.chunk_sizing(0.1).to_dict("records")
    assert found["Advice"] == "Make chunks 2.25 times larger, to reduce overhead."
    (found,) = analyser.chunk_sizing(0.5).to_dict("records")
    assert (found["Times Larger"], found["Advice"]) == (1.0, "Large enough.")


def test_overhead_of_each_run(tmp_path: Path) -> None:
    sent = [
        row(TASK_RUN, key="f-1", run_id=24, worker=A, timestamp=T + 2.0, duration=3.0, queued=T + 1)
    ]
    rows = [
        ran("f-0", 0.0, 1.5),
        # Runnable from 1 s, thread free from 1.5 s, and inputs available after 0.5 s of transfer.
        ran("f-1", 3.0, 4.0, received=T + 2.25, ready=T + 2.75),
        # Runnable (received) 0.25 s before its start, long after its thread was free.
        ran("f-2", 8.0, 9.0, disk_read=0.0625, deserialize=0.0625),
        ran("f-3", 8.5, 9.0, thread=8),  # the first task run on its thread
        ran("f-4", 9.0, 10.0, thread=None),  # a coroutine
        ran("f-5", 10.0, 11.0, executing=None, received=None, ready=None, done=None),
    ]
    analyser = written(tmp_path, *rows, SchedulerPlugin=(TASK_RUN, sent))
    found = task_overhead(analyser.run)
    assert found.tolist() == pytest.approx(
        [0.25, 0.25 + 1.0, 0.125 + 0.25, 0.25, 0.25, np.nan], nan_ok=True
    )
