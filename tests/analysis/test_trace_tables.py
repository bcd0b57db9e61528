"""`Trace`: joined records of workers and scheduler, and data notes about missing records."""

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from traces import Plan, Plugin, T, Task, compute, managed, record, row, usage, write_as_dasf

from dasfprof import FileDatabase, InstantEvent, Trace, TraceAnalyser
from dasfprof.analysis.diagnosis.run_figures import RunFigures
from dasfprof.analysis.trace.columns import make_categorical, row_of
from dasfprof.analysis.trace.gaps import NoteKind
from dasfprof.report.run_summary import summarise
from dasfprof.schema.events import Event, Schema
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE, GRAPH, TASK_RUN, TRANSFER, WORKER_ADDED, WORKER_REMOVED

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
    key = ("sum-" + "1a" * 16, 3)
    first = [ran(key, 7, 0.0, state="erred"), ran(key, 8, 2.0), ran("other-1", 7, 4.0)]
    two_workers(tmp_path, first=first, second=[ran(key, 9, 6.0)])
    runs = [
        scheduled(key, 9, B, 5.5, queued=T + 5.25, priority_order=4, annotations={"step": "a"}),
        scheduled(key, 7, A, -0.5, state="released"),
        scheduled("other-1", 7, A, 3.5, exception="no", state="erred"),
        scheduled(key, 8, B, 1.5),  # never on this worker: it was stolen, and ran on the other one
    ]
    scheduler(tmp_path, runs)
    trace = Trace.from_database(tmp_path)
    tasks = trace.tasks
    assert tasks["worker"].tolist() == ["worker-node1-w"] * 3 + ["worker-node2-w"]
    assert tasks["state"].tolist() == ["erred", "memory", "memory", "memory"]
    assert (tasks["sent"] - T).tolist() == pytest.approx([-0.5, np.nan, 3.5, 5.5], nan_ok=True)
    assert (tasks["known"] - T).tolist() == pytest.approx([1.5, np.nan, 5.5, 7.5], nan_ok=True)
    assert tasks["queued"].notna().tolist() == [False, False, False, True]
    assert tasks["scheduler_state"].tolist()[0] == "released"
    assert tasks["annotations"].tolist() == [{}, None, {}, {"step": "a"}]
    assert tasks["source"].tolist() == ["worker"] * 4
    assert trace.scheduler_only[["run_id", "lost"]].to_numpy().tolist() == [[8, False]]


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
    two_workers(tmp_path, first=[ran("f-1", 1, 0.0)], second=[ran("f-2", 2, 0.0)], close=False)
    runs = [scheduled("f-1", 1, A, -0.5), scheduled("f-2", 2, B, -0.5)]
    runs.append(scheduled("g-3", 3, B, 1.0, start=T + 1.5, stop=T + 2.25))
    runs.append(scheduled("f-4", 4, B, 2.0, state="released"))
    left = row(WORKER_REMOVED, timestamp=T + 3, worker=B, reason="timeout")
    scheduler(tmp_path, runs, (WORKER_REMOVED, [left]))
    analyser = TraceAnalyser(tmp_path)
    assert analyser.per_task_bottleneck()["Task Key"].tolist() == ["f-1", "f-2"]
    left_out = analyser.trace.scheduler_only
    keys = analyser.trace.keys.texts(left_out["key_id"].to_numpy()).tolist()
    assert keys == ["g-3", "f-4"]
    assert left_out["lost"].tolist() == [True, False]
    assert left_out["reason"].tolist() == ["file ends early"] * 2
    notes = "\n".join(map(str, analyser.trace.notes))
    assert "worker-node2-w: 1 task run (0.750 s) that the scheduler recorded" in notes
    assert "ended without closing" in notes
    workers = analyser.trace.workers
    workers = workers[workers["kind"] == "worker"].set_index("host")
    assert workers["closed"].tolist() == [True, False]
    assert workers.loc["node2", ["left", "left_reason"]].tolist() == [T + 3, "timeout"]
    facts = summarise(analyser.run)
    assert (facts["tasks"], facts["unseen"], facts["functions"]) == (3, 1, 2)


def test_a_worker_without_a_file(tmp_path: Path) -> None:
    Plugin(tmp_path, host="node1", name="w", address=A).write((COMPUTE, [ran("f-1", 1, 0.0)]))
    runs = [scheduled("f-1", 1, A, -0.5), scheduled("f-2", 2, B, 0.0, start=T, stop=T + 1)]
    joined = row(WORKER_ADDED, timestamp=T, worker=B, name="far", host="10.0.0.2", nthreads=4)
    scheduler(tmp_path, runs, (WORKER_ADDED, [joined]))
    analyser = TraceAnalyser(tmp_path)
    assert analyser.per_function_bottleneck()["Num Tasks (chunks)"].tolist() == [1]
    assert analyser.trace.scheduler_only["reason"].tolist() == ["no file"]
    assert any(f"{B}: 1 task run (" in note.text for note in analyser.trace.notes)
    far = analyser.trace.workers.set_index("address").loc[B]
    assert (far["host"], far["worker"], far["name"], far["nthreads"]) == ("10.0.0.2", B, "far", 4)


def test_without_any_worker_file_the_scheduler_tells(tmp_path: Path) -> None:
    monitor = Plugin(tmp_path, "ResourceMonitor", host="node1", name="w", address=A)
    monitor.write((RESOURCE_USAGE, [row(RESOURCE_USAGE, timestamp=T)]))
    runs = [
        scheduled("f-1", 1, A, 0.0, start=T + 0.5, stop=T + 1.5, size=2_000_000),
        scheduled("f-2", 2, B, 0.0, start=T + 0.5, stop=T + 0.75, state="erred"),
        scheduled("f-3", 3, B, 0.0, state="released"),
    ]
    scheduler(tmp_path, runs)
    analyser = TraceAnalyser(tmp_path)
    labels = ["Worker", "Duration (s)", "Memory usage (Mb)", "State"]
    tasks = analyser.per_task_bottleneck()[labels].astype(object).to_numpy().tolist()
    assert tasks == [["worker-node1-w", 1.0, 2.0, "memory"], [B, 0.25, 0.0, "erred"]]
    assert analyser.per_function_bottleneck()["Mean Data Size (MB)"].isna().all()
    assert analyser.trace.tasks["source"].tolist() == ["scheduler"] * 2
    assert analyser.trace.scheduler_only["run_id"].tolist() == [3]
    assert "no-worker-files" in {note.kind for note in analyser.trace.notes}


def test_damage_costs_no_more_than_what_it_hit(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, host="node1", name="w", address=A)
    path = plugin.write((COMPUTE, [ran("f-1", 1, 0.0)]), (TRANSFER, [row(TRANSFER, timestamp=T)]))
    data = bytearray(path.read_bytes())
    transfers = [found.start() for found in re.finditer(rb"\xc1dasfpf\n", data)][2]
    data[transfers + 50] ^= 1
    path.write_bytes(data)
    analyser = TraceAnalyser(tmp_path)
    assert analyser.per_task_bottleneck()["Task Key"].tolist() == ["f-1"]
    assert len(analyser.trace.transfers) == 0
    assert any("corrupt" in note.text for note in analyser.trace.notes)


def test_clocks_of_dasf_are_moved_to_unix_time(tmp_path: Path) -> None:
    events = [
        compute("f-1", 100.0, 1.0, "w", host="a"),
        compute("f-2", 5000.0, 1.0, "w", host="b"),
        # The median counts, because the clock was set during one sample.
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
    needed = [[texts[key] for key in each] for each in np.split(ids, offsets[1:-1])]
    graph = dict(zip(texts, needed, strict=True))
    assert graph == {"a": [], "b": [], "c": ["e"], "d": ["c"], "e": []}


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


@pytest.mark.parametrize("write", [record, write_as_dasf])
def test_files_that_tell_little(tmp_path: Path, write: Any) -> None:
    """Files of DASF have durations of tasks, and samples of a process that is not a worker."""
    events: list[Event] = [compute(f"f-{at}", T + at, 1.0, "w") for at in (0, 1, 3)]
    reading = usage(T, **{"host_net_io.read_size": 2e6, "cpu": "x"})
    analyser = TraceAnalyser(write(tmp_path / "run", [*events, reading]), progress=False)
    tasks, summary = analyser.processed_tasks(), analyser.process_summary()
    assert tasks["Elapsed Seconds"].isna().all() and summary["Elapsed Seconds"].isna().all()
    assert tasks["Run Method Seconds"].tolist() == [1.0] * 3
    assert summary["Threads"].isna().all()
    assert analyser.node_resource_usage()["Network Recv (MB)"].tolist() == [2.0]
    processes = analyser.processes_resource_usage()
    assert processes["Memory Used (MB)"].tolist() == [2744.7296]
    assert processes["Cpu Percent"].isna().all()
    (sizes,) = analyser.chunk_sizing().to_dict("records")
    assert np.isnan(sizes["Overhead per Task (s)"]) and sizes["Advice"].startswith("Unknown")
    times = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    expected = {"Running (CPU time not recorded)": 3.0, "Idle (cause unknown)": 1.0}
    assert times.to_dict() == pytest.approx(expected)
    # There are no steps.
    assert "Step" not in tasks and "Step" not in analyser.per_task_bottleneck()
    assert not [note for note in analyser.trace.notes if note.kind == "steps"]
    for table in (analyser.per_step_bottleneck(), analyser.imbalance(by="step")):
        assert table["Step"].tolist() == ["(no step)"]


def test_a_host_of_one_address_has_one_name(tmp_path: Path) -> None:
    """The scheduler only knows the host's address of a worker without files."""
    Plan([Task("f-0", 0, 0.0, 1.0)], threads=1).write(tmp_path)
    for path in tmp_path.glob("*-1-4001.msgpack"):
        path.unlink()
    workers = TraceAnalyser(tmp_path, progress=False).trace.workers
    assert workers.loc[workers["kind"] == "worker", "host"].tolist() == ["node1", "node1"]


def test_a_row_has_texts_that_pandas_cannot_hash() -> None:
    names = make_categorical(np.array([1, 0]), ["\ud800", "client"])
    table = pd.DataFrame({"client": names, "time": [T, T + 1]})
    assert row_of(table, 1) == {"client": "\ud800", "time": T + 1}


def test_a_run_whose_name_holds_a_rules_words_keeps_its_warnings(tmp_path: Path) -> None:
    Plugin(tmp_path, "ResourceMonitor").write((RESOURCE_USAGE, [row(RESOURCE_USAGE)]))
    written = Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]), close=False)
    name = "GPU-load, step of the pipeline, inputs of unknown size-TracePlugin-node1-0.msgpack"
    written.rename(tmp_path / name)
    analyser = TraceAnalyser(tmp_path / "*.msgpack", progress=False)
    (note,) = [note for note in analyser.trace.notes if note.kind == "not-closed"]
    assert note.subject == name
    assert note.text.startswith(f"{name}: ")
    assert "ended without closing" in note.text
    assert any("ended without closing" in text for text in analyser.diagnose()["Evidence"])


def test_what_is_no_fault_of_a_trace_is_no_finding(tmp_path: Path) -> None:
    Plugin(tmp_path, "ResourceMonitor").write((RESOURCE_USAGE, [row(RESOURCE_USAGE)]))
    Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]))
    Plugin(tmp_path, "SchedulerPlugin").write((GRAPH, [row(GRAPH)]))
    analyser = TraceAnalyser(tmp_path / "*.msgpack", progress=False)
    kinds = {note.kind for note in analyser.trace.notes}
    assert "gpu" in kinds
    assert kinds <= set(get_args(NoteKind))
    assert not any("not whole" in text for text in analyser.diagnose()["Finding"])


LATER = Schema("I", "Pause", (("timestamp", "float"),), (("reason", "text"),))


def test_events_that_only_a_later_version_knows_are_counted_and_named(tmp_path: Path) -> None:
    pauses = [row(LATER, timestamp=100.0 + i, reason="memory") for i in range(3)]
    path = Plugin(tmp_path).write((COMPUTE, [row(COMPUTE, key="a-1")]), (LATER, pauses))
    trace = TraceAnalyser(path, progress=False).trace
    (note,) = [note for note in trace.notes if note.kind == "unknown-events"]
    assert (note.subject, len(trace.tasks), len(trace.events)) == (path.name, 1, 0)
    expected = "3 events of kinds that this version of dasfprof does not know: Pause (3)."
    assert note.text == f"{path.name}: {expected}"
    # Events of user code are not unknown.
    with FileDatabase(tmp_path / "mine.msgpack") as database:
        database.record(InstantEvent("Pause", 100.0))
    trace = TraceAnalyser(tmp_path / "mine.msgpack", progress=False).trace
    assert len(trace.events) == 1
    assert not [note for note in trace.notes if note.kind == "unknown-events"]
