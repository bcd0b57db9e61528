"""Links lead from run to run: of a key that ran again, to the run whose result was taken."""

from __future__ import annotations

import gc
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from examples import examples
from hypothesis import given
from traces import ANY_RUNS, Plan, T, Task, made_trace

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.model.links import find_links
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.slots import task_slots


def repeated() -> Plan:
    """A key runs four times, the second time in vain; each result is taken; one came from before.

    ``early-0`` takes ``late-0``, which runs only later: its result was there before the recording.
    """
    tasks = [
        Task("make-0", 0, 0.0, 1.0),
        Task("take-0", 1, 1.5, 2.0, dependencies=["make-0"]),
        Task("make-0", 0, 2.5, 3.0, state="erred", exception="ValueError()"),
        Task("make-0", 0, 3.5, 4.0),
        Task("take-1", 1, 4.5, 5.0, dependencies=["make-0"]),
        Task("make-0", 1, 5.5, 6.0),
        Task("take-2", 0, 6.5, 7.0, dependencies=["make-0"]),
        Task("early-0", 0, 7.0, 7.5, dependencies=["late-0"]),
        Task("late-0", 1, 8.0, 8.5),
    ]
    return Plan(tasks, threads=1)


def links(trace: Run) -> set[tuple[str, float, float | None]]:
    """List the links: the key that took, and when it and what it took began."""
    found = find_links(trace)
    starts = (task_slots(trace).times.start).round(6)
    keys = trace.keys.texts(trace.tasks["key_id"].to_numpy()[found.row])
    made = [None if row < 0 else float(starts[row]) for row in found.producer]
    return set(zip(keys.tolist(), starts[found.row].tolist(), made, strict=True))


def test_a_run_is_linked_to_the_run_whose_result_it_took(tmp_path: Path) -> None:
    trace = repeated().write(tmp_path).run
    expected = {("take-0", 1.5, 0.0), ("take-1", 4.5, 3.5), ("take-2", 6.5, 5.5)}
    assert links(trace) == {*expected, ("early-0", 7.0, None)}


def test_a_result_may_be_of_a_worker_that_was_lost(tmp_path: Path) -> None:
    plan = Plan([Task("make-0", 0, 0.0, 1.0), Task("take-0", 0, 5.0, 6.0, dependencies=["make-0"])])
    lost = {"timestamp": T + 2.0, "duration": 1.5, "key": "make-0", "run_id": 9, "state": "memory"}
    lost |= {"worker": "tcp://10.0.0.1:4001", "start": T + 2.5, "stop": T + 3.0}
    plan.unseen = [{**lost, "cause": "update-graph-1", "end_cause": "task-finished-9"}]
    assert links(plan.write(tmp_path).run) == {("take-0", 5.0, 2.5)}


def test_without_the_scheduler_a_result_is_that_of_the_last_run_before(tmp_path: Path) -> None:
    plan = repeated()
    plan.scheduler = False
    expected = {("take-0", 1.5, 0.0), ("take-1", 4.5, 3.5), ("take-2", 6.5, 5.5)}
    # The one run of a key may be on a host with another clock.
    assert links(plan.write(tmp_path).run) == {*expected, ("early-0", 7.0, 8.0)}


@examples(12, long=100)
@given(ANY_RUNS)
def test_links_of_random_traces(runs: list[dict[str, object]]) -> None:
    trace = made_trace(runs, workers=({}, {}))
    found, times = find_links(trace), task_slots(trace).times
    wanted = [(row, key) for row, run in enumerate(runs) for key in run["dependencies"]]
    texts = trace.keys.texts(found.key_id)
    for (row, key), taker, text, producer in zip(
        wanted, found.row, texts, found.producer, strict=True
    ):
        assert (taker, text) == (row, key)
        made = [
            other
            for other, run in enumerate(runs)
            if run["key"] == key
            and run["state"] == "memory"
            and times.known[other] <= times.sent[row]
        ]
        assert (producer == -1) == (not made)
        if made:
            assert producer in made
            assert times.known[producer] == max(times.known[made])


def make(number: int) -> bytes:
    return bytes(1000 * number)


def take(data: bytes) -> int:
    return len(data)


@pytest.mark.dask_internals
def test_a_key_that_a_cluster_ran_four_times(tmp_path: Path) -> None:
    """Each round's results are released, so that the next makes them again."""
    rounds: list[list[str]] = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        for turn in range(4):
            made = [client.submit(make, at, key=f"make-{at}") for at in range(4)]
            taken = [client.submit(take, one, key=f"take-{turn}-{one.key}") for one in made]
            wait(taken)
            rounds.append([one.key for one in taken])
            del made, taken
            until = time.monotonic() + 120
            while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
                assert time.monotonic() < until
                gc.collect()  # futures may be in circles
    trace = TraceAnalyser(run.files()).run
    found = find_links(trace)
    assert len(found.row) == 16
    run_ids = trace.tasks["run_id"].to_numpy()
    starts = trace.tasks["start"].to_numpy()
    assert (starts[found.producer] < starts[found.row]).all()
    # Dask counts runs up: those of a round lie between those of the rounds around it.
    keys = trace.keys.texts(trace.tasks["key_id"].to_numpy()).tolist()
    for turn, taken in enumerate(rounds):
        own = [row for row in range(len(found.row)) if keys[found.row[row]] in taken]
        assert sorted((run_ids[found.producer[own]] - run_ids.min()) // 8) == [turn] * 4
    assert Counter(keys[row] for row in found.producer) == {f"make-{at}": 4 for at in range(4)}
    assert len(np.unique(found.producer)) == 16
