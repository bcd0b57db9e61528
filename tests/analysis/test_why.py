"""Waits of one task, and the location of its inputs: by hand, and on a real cluster."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import new_client
from traces import Plan, Task

import dasfprof
from dasfprof.errors import InvalidArgumentError

#: Names of a plan's workers.
FIRST, SECOND = "worker-node1-0", "worker-node1-1"


def one_input(*more: Task) -> Plan:
    """Plan ``take-0``, which waits for a thread on the worker with its input; the other is idle."""
    tasks = [
        Task("make-0", 0, 0.0, 1.0, size=10_000_000),
        Task("busy-0", 0, 1.0, 3.0, sent=0.5, received=0.5, ready=0.5),
        Task("take-0", 0, 3.0, 4.0, sent=1.1, received=1.1, ready=1.1, dependencies=["make-0"]),
        Task("last-0", 1, 5.0, 6.0, sent=5.0),
        *more,
    ]
    return Plan(tasks, threads=1)


def of(table: pd.DataFrame, part: str) -> list[dict[Any, Any]]:
    return table[table["Part"] == part].to_dict("records")


def test_parts_touch_and_name_what_was_waited_for(tmp_path: Path) -> None:
    table = one_input().write(tmp_path).why("take-0")
    parts = table[table["Duration (s)"].notna()]
    assert parts["Part"].tolist() == ["waiting for inputs", "waiting for a thread", "running"]
    assert parts["Start (s)"].round(6).tolist() == [0.0, 1.1, 3.0]
    assert parts["Duration (s)"].round(6).tolist() == [1.1, 1.9, 1.0]
    assert parts["Worker"].tolist() == ["scheduler", FIRST, FIRST]
    inputs, thread, _ = parts["Description"]
    assert "make-0" in inputs and FIRST in inputs and "1.000 s" in inputs
    assert "busy-0" in thread


def test_inputs_and_queues_of_the_workers_at_the_assignment(tmp_path: Path) -> None:
    """The first worker has 12 MB and two tasks; the other computed 1 MB and fetched 2 MB."""
    inputs = ["large-0", "small-0", "both-0"]
    tasks = [
        Task("busy-0", 0, 0.0, 1.0),
        Task("large-0", 0, 1.0, 1.2, size=10_000_000),
        Task("both-0", 0, 0.2, 0.4, size=2_000_000),
        Task("small-0", 1, 1.0, 1.4, size=1_000_000),
        Task("busy-1", 0, 1.2, 2.2, sent=1.05, received=1.05, ready=1.05),
        Task("busy-2", 0, 2.2, 3.2, sent=1.1, received=1.1, ready=1.1),
        Task("take-0", 1, 3.5, 4.0, sent=1.5, received=1.5, ready=2.0, dependencies=inputs),
    ]
    moved = [(1, 0.5, 0.6, 2_000_000, ["both-0"]), (1, 1.6, 1.9, 10_000_000, ["large-0"])]
    table = Plan(tasks, threads=1, transfers=moved).write(tmp_path).why("take-0")
    figures = ["Worker", "Start (s)", "Tasks Assigned", "Inputs Held (MB)"]
    (chosen,), (other,) = of(table, "assigned"), of(table, "other worker")
    assert [chosen[name] for name in figures] == [SECOND, pytest.approx(1.5), 0, 3]
    assert [other[name] for name in figures] == [FIRST, pytest.approx(1.5), 2, 12]
    (fetched,) = of(table, "fetching inputs")
    assert "1 transfer of 10 MB" in fetched["Description"]


def test_inputs_of_unknown_origin_are_not_located(tmp_path: Path) -> None:
    """Its input existed before any recorded task computed it."""
    take = Task("take-0", 0, 3.0, 4.0, sent=1.1, dependencies=["scattered-0"])
    table = Plan([take, Task("scattered-0", 1, 5.0, 6.0)]).write(tmp_path).why("take-0")
    (chosen,) = of(table, "assigned")
    assert pd.isna(chosen["Inputs Held (MB)"])
    assert "not recorded" in of(table, "waiting for inputs")[0]["Description"]


def test_a_key_is_one_that_ran(tmp_path: Path) -> None:
    analyser = one_input(Task("busy-1", 1, 6.0, 7.0, sent=6.0)).write(tmp_path)
    assert len(analyser.why("tak")) == len(analyser.why("take-0"))
    for key, message in (
        ("busy", "2 keys have this prefix"),
        ("nothing", "no task run has this key"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            analyser.why(key)


def test_a_stolen_task_run_names_its_victim(tmp_path: Path) -> None:
    def join(held: int) -> int:
        time.sleep(0.2)
        return held

    with (
        new_client(n_workers=4, threads_per_worker=1, processes=False) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        first = next(iter(client.nthreads()))
        held = client.submit(int, 1, workers=[first])
        # The groups are so small that they are not queued on the scheduler.
        keys = [f"join{number % 4}-{number}" for number in range(24)]
        client.gather([client.submit(join, held, key=key) for key in keys])
    analyser = run.analyser()
    tasks, address = analyser.trace.tasks, analyser.trace.workers["address"]
    stolen = tasks[tasks["stolen"].notna()].iloc[0]
    (key,) = analyser.trace.keys.texts(np.array([stolen["key_id"]]))
    table = analyser.why(str(key))
    (waited,), (assigned,) = of(table, "waiting on another worker"), of(table, "assigned")
    titles = analyser.run.named.titles()
    life = address.tolist().index(first)
    assert waited["Worker"] == titles[analyser.run.named.of_lives[life]]
    assert assigned["Worker"] == titles[analyser.run.named.of_lives[stolen["worker_id"]]]
    assert waited["Duration (s)"] > 0
