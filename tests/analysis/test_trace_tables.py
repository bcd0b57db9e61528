"""`Trace`: what workers and the scheduler recorded, joined, and what is missing, said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import Plan, Plugin, Task, compute, managed, record, row, usage, write_as_dasf

from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.columns import make_categorical, row_of
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, TASK_RUN, TRANSFER, WORKER_ADDED, WORKER_REMOVED

T = 1.7e9
A, B = "tcp://10.0.0.1:4001", "tcp://10.0.0.2:4002"


def ran(key: Any, run_id: int, start: float, **values: Any) -> tuple[Any, ...]:
    values = {"state": "memory", "duration": 1.0, "dependencies": [], **values}
    return row(COMPUTE, timestamp=T + start, key=key, run_id=run_id, **values)


def scheduled(key: Any, run_id: int, worker: str, sent: float, **values: Any) -> tuple[Any, ...]:
    values = {"state": "memory", "duration": 2.0, **values}
    return row(TASK_RUN, timestamp=T + sent, key=key, run_id=run_id, worker=worker, **values)


def two_workers(directory: Path, *, first: Any = (), second: Any = (), close: bool = True) -> None:
    one = Plugin(directory, host="node1", name="w", address=A)
    two = Plugin(directory, host="node2", name="w", address=B)
    one.write((COMPUTE, first))
    two.write((COMPUTE, second), close=close)


def scheduler(directory: Path, runs: Any, *more: Any) -> None:
    Plugin(directory, "SchedulerPlugin").write((TASK_RUN, runs), *more)


def test_scheduler_and_worker_join_on_key_run_and_worker(tmp_path: Path) -> None:
    run = tmp_path / "run"
    key = ("sum-" + "1a" * 16, 3)
    two_workers(
        run,
        first=[ran(key, 7, 0.0, state="erred"), ran(key, 8, 2.0), ran("other-1", 7, 4.0)],
        second=[ran(key, 9, 6.0)],
    )
    runs = [
        scheduled(key, 9, B, 5.5, queued=T + 5.25, priority_order=4, annotations={"step": "a"}),
        scheduled(key, 7, A, -0.5, state="released"),
        scheduled("other-1", 7, A, 3.5, exception="no", state="erred"),
        scheduled(key, 8, B, 1.5),  # never there: it was stolen, and ran on the other
    ]
    scheduler(run, runs)
    trace = Trace.from_database(run)

    tasks = trace.tasks
    assert tasks["worker"].tolist() == ["worker-node1-w"] * 3 + ["worker-node2-w"]
    assert tasks["state"].tolist() == ["erred", "memory", "memory", "memory"]
    assert (tasks["sent"] - T).tolist() == pytest.approx([-0.5, np.nan, 3.5, 5.5], nan_ok=True)
    assert (tasks["known"] - T).tolist() == pytest.approx([1.5, np.nan, 5.5, 7.5], nan_ok=True)
    assert tasks["queued"].notna().tolist() == [False, False, False, True]
    assert tasks["scheduler_state"].tolist()[0] == "released"
    assert tasks["annotations"].tolist() == [{}, None, {}, {"step": "a"}]
    assert tasks["source"].tolist() == ["worker"] * 4
    assert trace.scheduler_only["run_id"].tolist() == [8]
    assert trace.scheduler_only["lost"].tolist() == [False]


def test_a_trace_that_tells_no_addresses_joins_on_key_and_run(tmp_path: Path) -> None:
    events = [compute("f-1", T, 1.0, "worker-x"), compute("f-1", T + 2, 1.0, "worker-x")]
    for run_id, event in enumerate(events):
        event.args["run_id"] = run_id
    run = record(tmp_path / "run", events)
    scheduler(run, [scheduled("f-1", 1, A, 1.5), scheduled("f-1", 2, A, 4.0)])
    trace = Trace.from_database(sorted(run.iterdir()))

    assert trace.tasks["sent"].isna().tolist() == [True, False]
    assert trace.scheduler_only["run_id"].tolist() == [2]


def test_task_runs_that_a_killed_worker_did_not_write(tmp_path: Path) -> None:
    run = tmp_path / "run"
    two_workers(run, first=[ran("f-1", 1, 0.0)], second=[ran("f-2", 2, 0.0)], close=False)
    lost = scheduled("f-3", 3, B, 1.0, start=T + 1.5, stop=T + 2.25)
    begun = scheduled("f-4", 4, B, 2.0, state="released")
    scheduler(
        run,
        [scheduled("f-1", 1, A, -0.5), scheduled("f-2", 2, B, -0.5), lost, begun],
        (WORKER_REMOVED, [row(WORKER_REMOVED, timestamp=T + 3, worker=B, reason="timeout")]),
    )
    analyser = TraceAnalyser(run)

    assert analyser.per_task_bottleneck()["Task Key"].tolist() == ["f-1", "f-2"]
    left_out = analyser.trace.scheduler_only
    assert trace_keys(analyser.trace, left_out) == ["f-3", "f-4"]
    assert left_out["lost"].tolist() == [True, False]
    assert left_out["reason"].tolist() == ["file ends early"] * 2
    notes = "\n".join(map(str, analyser.trace.notes))
    assert "worker-node2-w: 1 task run (0.750 s) that the scheduler recorded" in notes
    assert "ended without closing" in notes
    workers = analyser.trace.workers
    workers = workers[workers["kind"] == "worker"].set_index("host")
    assert workers["closed"].tolist() == [True, False]
    assert workers.loc["node2", "left"] == T + 3
    assert workers.loc["node2", "left_reason"] == "timeout"


def trace_keys(trace: Trace, table: pd.DataFrame) -> list[str]:
    return trace.keys.texts(table["key_id"].to_numpy()).tolist()


def test_a_worker_without_a_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    Plugin(run, host="node1", name="w", address=A).write((COMPUTE, [ran("f-1", 1, 0.0)]))
    runs = [scheduled("f-1", 1, A, -0.5), scheduled("f-2", 2, B, 0.0, start=T, stop=T + 1)]
    joined = row(WORKER_ADDED, timestamp=T, worker=B, name="far", host="10.0.0.2", nthreads=4)
    scheduler(run, runs, (WORKER_ADDED, [joined]))
    analyser = TraceAnalyser(run)

    assert analyser.per_function_bottleneck()["Num Tasks (chunks)"].tolist() == [1]
    assert analyser.trace.scheduler_only["reason"].tolist() == ["no file"]
    assert any(f"{B}: 1 task run (" in note.text for note in analyser.trace.notes)
    far = analyser.trace.workers.set_index("address").loc[B]
    assert (far["host"], far["worker"], far["name"], far["nthreads"]) == ("10.0.0.2", B, "far", 4)


def test_without_any_worker_file_the_scheduler_tells(tmp_path: Path) -> None:
    run = tmp_path / "run"
    monitor = Plugin(run, "ResourceMonitor", host="node1", name="w", address=A)
    monitor.write((RESOURCE_USAGE, [row(RESOURCE_USAGE, timestamp=T)]))
    runs = [
        scheduled("f-1", 1, A, 0.0, start=T + 0.5, stop=T + 1.5, size=2_000_000),
        scheduled("f-2", 2, B, 0.0, start=T + 0.5, stop=T + 0.75, state="erred"),
        scheduled("f-3", 3, B, 0.0, state="released"),
    ]
    scheduler(run, runs)
    analyser = TraceAnalyser(run)

    tasks = analyser.per_task_bottleneck()
    assert tasks["Worker"].tolist() == ["worker-node1-w", B]
    assert tasks["Duration (s)"].tolist() == [1.0, 0.25]
    assert tasks["Memory usage (Mb)"].tolist() == [2.0, 0.0]
    assert tasks["State"].tolist() == ["memory", "erred"]
    functions = analyser.per_function_bottleneck()
    assert functions["Mean Data Size (MB)"].isna().all()
    assert analyser.trace.tasks["source"].tolist() == ["scheduler"] * 2
    assert analyser.trace.scheduler_only["run_id"].tolist() == [3]
    assert "no-worker-files" in {note.kind for note in analyser.trace.notes}


def test_damage_costs_no_more_than_what_it_hit(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plugin = Plugin(run, host="node1", name="w", address=A)
    path = plugin.write((COMPUTE, [ran("f-1", 1, 0.0)]), (TRANSFER, [row(TRANSFER, timestamp=T)]))
    data = bytearray(path.read_bytes())
    transfers = [found.start() for found in re.finditer(rb"\xc1dasfpf\n", data)][2]
    data[transfers + 50] ^= 1
    path.write_bytes(data)
    analyser = TraceAnalyser(run)

    assert analyser.per_task_bottleneck()["Task Key"].tolist() == ["f-1"]
    assert len(analyser.trace.transfers) == 0
    assert any("corrupt" in note.text for note in analyser.trace.notes)


def test_clocks_of_dasf_are_moved_to_unix_time(tmp_path: Path) -> None:
    events = [
        compute("f-1", 100.0, 1.0, "w", host="a"),
        compute("f-2", 5000.0, 1.0, "w", host="b"),
        # The median tells: one reading was taken as the clock was being set.
        *(usage(99.0 + n, host="a", time=T + 99.0 + n) for n in range(3)),
        usage(102.0, host="a", time=T + 3600),
        usage(5000.0, host="b", time=T + 101),
    ]
    trace = Trace.from_database(write_as_dasf(tmp_path / "run", events))

    assert trace.tasks["start"].tolist() == [T + 100, T + 101]
    assert trace.begin == T + 99


def test_no_duration_is_negative(tmp_path: Path) -> None:
    runs = [ran("f-1", 1, 1.0, duration=-2.0), ran("f-2", 2, 1.0, duration=float("nan"))]
    two_workers(tmp_path / "run", first=runs)
    analyser = TraceAnalyser(tmp_path / "run")

    assert analyser.per_task_bottleneck()["Duration (s)"].tolist() == [0.0, 0.0]
    assert analyser.per_function_bottleneck()["Percentage of total time (%)"].isna().all()
    figures = RunFigures(analyser.run)
    for seconds in (1.0, -0.5):
        assert figures.with_durations(np.arange(1), seconds).tolist() == [0.0, 0.0]


def test_transitions_are_the_times_of_all_observers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    times = {"received": T, "ready": T + 1, "executing": T + 2, "done": T + 4}
    two_workers(run, first=[ran("f-1", 1, 2.5, **times)])
    scheduler(run, [scheduled("f-1", 1, A, -1.0, waiting=T - 2), scheduled("f-2", 2, B, 0.0)])
    found = Trace.from_database(run).transitions

    rows = found.sort_values("time")[["run_id", "observer", "state", "time"]]
    rows["time"] -= T
    assert sorted(rows.itertuples(index=False, name=None)) == sorted(
        [
            (1, "scheduler", "waiting", -2.0),
            (1, "scheduler", "processing", -1.0),
            (1, "worker", "waiting", 0.0),
            (1, "worker", "ready", 1.0),
            (1, "worker", "executing", 2.0),
            (1, "worker", "memory", 4.0),
            (1, "scheduler", "memory", 1.0),
            (2, "scheduler", "processing", 0.0),
            (2, "scheduler", "memory", 2.0),
        ]
    )


def test_dependencies_are_those_of_the_last_run(tmp_path: Path) -> None:
    events = [
        compute("a", 0.0, 1.0, "w"),
        compute("c", 1.0, 1.0, "w", dependencies=["a", "b"]),
        compute("d", 2.0, 1.0, "w", dependencies=["c"]),
        compute("c", 3.0, 1.0, "w", dependencies=["e"]),
    ]
    trace = Trace.from_database(record(tmp_path / "run", events))

    offsets, ids = trace.dependencies
    texts = trace.keys.texts(np.arange(len(trace.keys))).tolist()
    graph = {
        text: [texts[key] for key in ids[offsets[at] : offsets[at + 1]]]
        for at, text in enumerate(texts)
    }
    assert graph == {"a": [], "b": [], "c": ["e"], "d": ["c"], "e": []}


def test_transfers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plugin = Plugin(run, host="node1", name="w", address=A)
    rows = [
        row(TRANSFER, timestamp=T, duration=0.5, source=B, keys=["x", "y"], size=10, state="ok"),
        row(TRANSFER, timestamp=T + 1, source=B, state="busy"),
    ]
    plugin.write((TRANSFER, rows))
    trace = Trace.from_database(run)

    assert trace.transfers["keys"].tolist() == [2, 0]
    assert trace.transfers["source"].tolist() == [B, B]
    assert trace.transfers["size"].tolist() == [10.0, 0.0]
    lengths, ids = trace.transfer_keys
    assert lengths.tolist() == [2, 0]
    assert trace.keys.texts(ids).tolist() == ["x", "y"]


def test_values_that_no_recorder_of_ours_would_write(tmp_path: Path) -> None:
    hostile = "\ud800\x1b[31m=1+1"
    events = [
        compute(hostile, 0.0, 1.0, hostile, host=hostile, state=hostile),
        compute(5, 1.0, 1.0, None, host="a"),
        compute(None, 2.0, 1.0, "w", dependencies=[hostile, 5]),
        managed(1.0, hostile, 2, host=hostile),
        usage(1.0, gpu_utilization="much", gpu_memory_used=[1], time=None, extra={"a": [1]}),
        usage(2.0, gpu_utilization=10**400, gpu_memory_used=2),
    ]
    events[0].args |= {"shape": {"a": 1}, "size": "big", "dtype": [hostile], "type": 7}
    events[1].args |= {"dependencies": "none", "run_id": "x"}
    del events[2].args["size"], events[2].args["key"]
    analyser = TraceAnalyser(record(tmp_path / "run", events))

    assert analyser.per_task_bottleneck()["Task Key"].tolist() == [hostile, "5", "None"]
    assert len(analyser.per_function_bottleneck()) == 3
    assert analyser.per_worker_task_balance()[hostile].tolist() == [2.0]
    assert analyser.create_annotated_task_graph().number_of_nodes() == 3
    assert hostile in analyser.trace.workers["host"].tolist()


def test_a_host_of_one_address_has_one_name(tmp_path: Path) -> None:
    """The scheduler knows a worker without files by its host's address alone."""
    Plan([Task("f-0", 0, 0.0, 1.0)], threads=1).write(tmp_path)
    for path in tmp_path.glob("*-1-4001.msgpack"):
        path.unlink()
    workers = TraceAnalyser(tmp_path, progress=False).trace.workers
    assert workers.loc[workers["kind"] == "worker", "host"].tolist() == ["node1", "node1"]


def test_a_row_has_texts_that_pandas_cannot_hash() -> None:
    names = make_categorical(np.array([1, 0]), ["\ud800", "client"])
    table = pd.DataFrame({"client": names, "time": [T, T + 1]})
    assert row_of(table, 1) == {"client": "\ud800", "time": T + 1}
