"""Tables of task runs, compared with tables by hand and, for random runs, with an oracle."""

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import Plan, Plugin, Task, row

from dasfprof import TraceAnalyser
from dasfprof.analysis.model.attempts import error_category
from dasfprof.schema.tasks import CLOCK, COMPUTE, TASK_RUN, WORKER_REMOVED

T = 1.7e9  # 2023-11-14 22:13:20 UTC
A, B = "tcp://10.0.0.1:4001", "tcp://10.0.0.2:4002"
INTERVAL = "Time Interval (seconds from begin)"


def ran(key: str, start: float, **values: Any) -> tuple[Any, ...]:
    """Return a task run: thread from `start`, function from 0.25 s to 1.25 s, done at 1.5 s."""
    times = {"timestamp": T + start + 0.25, "executing": T + start, "done": T + start + 1.5}
    usual = {"state": "memory", "duration": 1.0, "cpu": 0.5, "run_id": int(start * 100)}
    return row(COMPUTE, key=key, **{**usual, **times, **values})


def sent(key: str, when: float, worker: str, **values: Any) -> tuple[Any, ...]:
    values = {"state": "released", "timestamp": T + when, "duration": 1.0, **values}
    return row(TASK_RUN, key=key, run_id=900 + int(when), worker=worker, **values)


@pytest.fixture
def run(tmp_path: Path) -> TraceAnalyser:
    """Write a run of two workers: a task is retried, and the second worker is killed."""
    error = {"state": "erred", "exception": "ValueError('no 3')"}
    first = [
        ran("load-1", 0.0, run_queue=0.25),
        ran("load-2", 2.0, **error),
        ran("load-2", 4.0),
        ran("store-1", 6.0, state="cancelled"),
        ran("store-2", 8.0, state="rescheduled", cpu=None),
    ]
    Plugin(tmp_path, host="node1", name=0, address=A).write((COMPUTE, first))
    Plugin(tmp_path, host="node2", name=1, address=B).write((COMPUTE, [ran("load-3", 1.0)]))
    lost = [
        # It ended in memory, so it ran, but the file ends before it.
        sent("load-4", 2.0, B, state="memory", start=T + 2.5, stop=T + 3.25),
        sent("load-5", 3.0, B, duration=2.0),
        # It was released long before the worker left, so nothing was lost.
        sent("load-6", 0.5, B, duration=0.25),
    ]
    left = row(WORKER_REMOVED, timestamp=T + 5.125, worker=B, reason="handle-worker-cleanup")
    Plugin(tmp_path, "SchedulerPlugin").write((TASK_RUN, lost), (WORKER_REMOVED, [left]))
    return TraceAnalyser(tmp_path)


def test_every_attempt_in_the_order_of_start(run: TraceAnalyser) -> None:
    table = run.processed_tasks()
    labels = "Task|Attempt|Process|Start Time (UTC)|Elapsed Seconds|Process Seconds"
    labels += "|Run Method Seconds|Status|Error Category|Error Message"
    assert list(table)[:10] == labels.split("|")
    w0, w1 = "worker-node1-0", "worker-node2-1"
    erred = "erred", "ValueError", "ValueError('no 3')"
    assert table.drop(columns=["Start Time (UTC)"]).astype(object).fillna("-").values.tolist() == [
        ["load-1", 1, w0, 1.5, 0.5, 1.0, "memory", "-", "-", "load", "node1", 0.25],
        ["load-3", 1, w1, 1.5, 0.5, 1.0, "memory", "-", "-", "load", "node2", "-"],
        ["load-2", 1, w0, 1.5, 0.5, 1.0, *erred, "load", "node1", "-"],
        ["load-4", 1, w1, "-", "-", 0.75, "memory", "-", "-", "load", "node2", "-"],
        ["load-5", 1, w1, "-", "-", "-", "released", "worker lost", "-", "load", "node2", "-"],
        ["load-2", 2, w0, 1.5, 0.5, 1.0, "memory", "-", "-", "load", "node1", "-"],
        ["store-1", 1, w0, 1.5, 0.5, 1.0, "cancelled", "cancelled", "-", "store", "node1", "-"],
        ["store-2", 1, w0, 1.5, "-", 1.0, "rescheduled", "rescheduled", "-", "store", "node1", "-"],
    ]
    starts = [0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0]
    assert table["Start Time (UTC)"].tolist() == [
        pd.Timestamp("2023-11-14 22:13:20") + pd.Timedelta(seconds=start) for start in starts
    ]


def test_by_function(run: TraceAnalyser) -> None:
    table = run.processed_tasks(by="function").set_index("Function")
    assert table.index.tolist() == ["load", "store"]
    names = ["Total", "Succeeded", "Failed", "Retried", "Elapsed Seconds", "Process Seconds"]
    names += ["Run Method Seconds", "Mean Elapsed Seconds"]
    assert table.loc["load", names].tolist() == [6, 4, 2, 1, 6.0, 2.0, 4.75, 1.5]
    assert table.loc["store", names].tolist() == [2, 0, 2, 0, 3.0, 0.5, 2.0, 1.5]
    assert table["Process / Elapsed (%)"].tolist() == pytest.approx([100 / 3, 100 / 3])
    assert table["Core Wait Seconds"].fillna(-1).tolist() == [0.25, -1]
    ends = ["2023-11-14 22:13:25.5", "2023-11-14 22:13:29.5"]
    assert table["End Time (UTC)"].tolist() == [*map(pd.Timestamp, ends)]


def test_by_process_and_node(run: TraceAnalyser) -> None:
    processes, nodes = run.process_summary(), run.node_summary()
    assert processes["Process"].tolist() == ["worker-node1-0", "worker-node2-1"]
    names = ["Node", "Threads", "Total", "Succeeded", "Failed", "Retried", "Share of Tasks (%)"]
    for table in (processes, nodes):
        assert table[[*names, "Elapsed Seconds"]].to_numpy().tolist() == [
            ["node1", 2, 5, 2, 3, 1, 62.5, 7.5],
            ["node2", 2, 3, 2, 1, 0, 37.5, 1.5],
        ]
    assert processes["Restarts"].tolist() == [0, 0]
    assert nodes["Processes"].tolist() == [1, 1]


def test_a_worker_without_tasks_and_one_that_came_back(tmp_path: Path) -> None:
    Plugin(tmp_path, name=0, address="tcp://n:1000").write((COMPUTE, [ran("f-1", 0.0)]))
    Plugin(tmp_path, name=0, address="tcp://n:1001").write((COMPUTE, [ran("f-2", 5.0)]))
    Plugin(tmp_path, name=1, address="tcp://n:1002").write((CLOCK, [row(CLOCK, timestamp=T)]))
    table = TraceAnalyser(tmp_path).process_summary()
    names = ["Total", "Restarts", "Share of Tasks (%)", "Elapsed Seconds"]
    assert table[names].to_numpy().tolist() == [[2, 1, 100.0, 3.0], [0, 0, 0.0, 0.0]]
    assert table["Start Time (UTC)"].isna().tolist() == [False, True]
    assert TraceAnalyser(tmp_path).node_summary()["Threads"].tolist() == [4]


def test_counts_by_interval_worker_and_status(run: TraceAnalyser) -> None:
    table = run.task_counts(interval=4.0)
    w0, w1 = "worker-node1-0", "worker-node2-1"
    begin = (
        run.trace.begin - T
    )  # the function of the first run, whose thread was taken 0.25 s before
    assert begin == 0.25
    assert table.values.tolist() == [
        [0.0, "node1", w0, "erred", 1, 0],
        [0.0, "node1", w0, "memory", 2, 1],  # load-2 again at 4.0 s, within 4 s of the start
        [0.0, "node2", w1, "memory", 2, 0],
        [0.0, "node2", w1, "released", 1, 0],
        [4.0, "node1", w0, "cancelled", 1, 0],
        [4.0, "node1", w0, "rescheduled", 1, 0],
    ]
    assert run.task_counts()["Tasks"].sum() == 8


def test_category_of_an_exception() -> None:
    categories = {
        "ValueError('no 3')": "ValueError",
        "KilledWorker('f-1', <WorkerState 'tcp://x'>, 3)": "worker lost",
        "<botocore.exceptions.ClientError at 0x7f>": "botocore.exceptions.ClientError",
        "Überlauf(1)": "Überlauf",
        "": "unknown",
        "('odd',)": "unknown",
    }
    assert {text: error_category(text) for text in categories} == categories


#: Key, start, worker, state and exception.
_run = st.tuples(
    *(st.sampled_from(["f-1", "f-2", "g-1"]), st.integers(0, 80).map(lambda eighths: eighths / 8)),
    st.sampled_from([0, 1]),
    st.sampled_from(["memory", "memory", "erred", "cancelled", "rescheduled"]),
    st.sampled_from([None, "KeyError('x')"]),
)


@examples(9)
@given(st.lists(_run, max_size=30))
def test_counts_of_random_runs(runs: list[tuple[str, float, int, str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "run")
        for worker in (0, 1):
            rows = [
                ran(key, start, state=state, exception=text, run_id=number)
                for number, (key, start, where, state, text) in enumerate(runs)
                if where == worker
            ]
            Plugin(path, name=worker, address=f"tcp://n:100{worker}").write(
                (COMPUTE, rows), (CLOCK, [row(CLOCK, timestamp=T + 0.25)])
            )
        analyser = TraceAnalyser(path)
        table = analyser.processed_tasks()
        functions = analyser.processed_tasks(by="function")
        counts = analyser.task_counts(2.0)
    attempts: dict[str, list[int]] = defaultdict(list)
    for task, attempt in zip(table["Task"], table["Attempt"], strict=True):
        attempts[task].append(attempt)
    repeats = Counter(key for key, *_ in runs)
    assert attempts == {key: list(range(1, count + 1)) for key, count in repeats.items()}
    failed = [state != "memory" for _, _, _, state, _ in runs]
    assert functions["Failed"].sum() == sum(failed)
    assert functions["Total"].sum() == len(runs) == counts["Tasks"].sum()
    expected = {
        "memory": lambda text: None,
        "erred": lambda text: "KeyError" if text else "unknown",
        "cancelled": lambda text: "KeyError" if text else "cancelled",
        "rescheduled": lambda text: "KeyError" if text else "rescheduled",
    }
    categories = Counter(expected[state](text) for _, _, _, state, text in runs)
    found = table["Error Category"]
    assert Counter(found.where(found.notna(), None).tolist()) == categories
    cells = Counter(
        (max(start - 0.25, 0.0) // 2 * 2, f"worker-node1-{worker}", state)
        for _, start, worker, state, _ in runs
    )
    columns = [INTERVAL, "Worker", "Status"]
    rows_found = counts[columns].itertuples(index=False, name=None)
    assert dict(zip(rows_found, counts["Tasks"], strict=True)) == cells


def test_a_recomputation_is_no_retry(tmp_path: Path) -> None:
    """One key is retried twice, one computed three times, and one rerun after its worker left."""
    failed = {"state": "erred", "exception": "ValueError()"}
    tasks = [Task("fit-0", 0, at, at + 1.0, **(failed if at < 2 else {})) for at in (0.0, 1.0, 2.0)]
    tasks += [Task("fit-1", 0, at, at + 1.0) for at in (3.0, 5.0, 7.0)]
    tasks += [Task("fit-2", 1, 0.0, 1.0, state="cancelled"), Task("fit-2", 1, 2.0, 3.0)]
    table = Plan(tasks, threads=1).write(tmp_path).processed_tasks("function")
    assert table[["Total", "Retried", "Recomputed"]].values.tolist() == [[8, 2, 2]]
