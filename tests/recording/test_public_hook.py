"""Where this Dask meters no instructions, its public `transition` hook gives the same task runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import independent_record as record
import numpy as np
import pytest
from clusters import new_client
from distributed import Client, Event, Reschedule, secede
from distributed.worker_state_machine import TaskState
from recorded_facts import assert_same_runs, assert_whole, computed, facts

import dasfprof
from dasfprof.recording.dask_internals import names
from dasfprof.recording.task_runs.outcomes import run_by_state
from dasfprof.recording.task_runs.results import ResultDescriber


@pytest.fixture(scope="module")
def cluster_client() -> Iterator[Client]:
    with new_client(n_workers=2, threads_per_worker=2, processes=False) as client:
        record.install(client)
        yield client


@pytest.fixture
def client(cluster_client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(names.METERING, "paths", ("distributed.worker:Worker._future",))
    record.clear(cluster_client)
    return cluster_client


def assert_runs_without_metering(run: Any, client: Client) -> None:
    runs = record.task_runs(client)
    assert_same_runs(run, runs)
    assert_whole(run)
    rows = computed(run)
    assert rows
    assert {row["cpu"] for row in rows} == {None}
    assert facts(run, "TracePlugin", "Transfer") == []


def test_results_of_every_kind(client: Client, tmp_path: Path) -> None:
    async def nap(i: int) -> int:
        await asyncio.sleep(0.02)
        return i

    def leave(i: int) -> int:
        secede()
        time.sleep(0.02)
        return i

    with dasfprof.profile(client, directory=tmp_path) as run:
        naps = client.map(nap, range(4), key=[("nap", i) for i in range(4)])
        assert client.gather(naps) == [0, 1, 2, 3]
        left = client.map(leave, range(4), key=[f"left-{i}" for i in range(4)])
        assert client.submit(sum, left, key="sum-of-left").result() == 6
        assert da.ones((20, 20), chunks=5).sum().compute() == 400
        kept = client.submit(np.ones, (3, 4), key="kept")
        assert kept.result().shape == (3, 4)
    assert_runs_without_metering(run, client)
    (row,) = (row for row in computed(run) if row["key"] == "kept")
    assert (row["type"], row["dtype"], row["shape"]) == ("numpy.ndarray", "float64", (3, 4))
    assert {row["seceded"] is None for row in computed(run) if row["name"] == "left"} == {False}


def test_errors_retries_and_rescheduling(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        flaky = client.submit(
            record.attempt, tmp_path / "a", 3, OSError, retries=5, key=("flaky", 0)
        )
        again = client.submit(record.attempt, tmp_path / "b", 3, Reschedule, key="again")
        wrong = client.submit(record.attempt, tmp_path / "c", 2, ValueError, key="wrong")
        assert client.gather([flaky, again]) == [3, 3]
        with pytest.raises(ValueError, match="attempt 1"):
            wrong.result()
    assert_runs_without_metering(run, client)
    states = sorted((str(row["key"]), row["state"], row["exception"]) for row in computed(run))
    assert [state for key, state, _ in states if key == "again"] == [
        "memory",
        "rescheduled",
        "rescheduled",
    ]
    assert ("wrong", "erred", "ValueError('attempt 1')") in states
    assert len(states) == 7


def test_a_failed_run_has_no_size() -> None:
    """Its worker may know the size of an earlier result, which it had to fetch."""
    task = TaskState(key="lost-1", run_id=3, nbytes=1000, exception_text="OSError()")
    facts_of_run = run_by_state(task, "executing", "error", {}, ResultDescriber())
    assert facts_of_run[:6] == ("lost-1", "lost", 3, "erred", 0, None)


def test_cancelled_while_running(client: Client, tmp_path: Path) -> None:
    def wait_for(event: str) -> None:
        assert Event(event).wait("120s")

    def state() -> set[Any]:
        tasks = client.run(lambda dask_worker: dask_worker.state.tasks.get("halted"))
        return {task.state for task in tasks.values() if task is not None}

    with dasfprof.profile(client, directory=tmp_path) as run:
        future = client.submit(wait_for, "halted-go", key="halted")
        record.wait_until(lambda: state() == {"executing"})
        client.cancel(future)
        record.wait_until(lambda: state() == {"cancelled"})
        Event("halted-go", client=client).set()
        record.wait_until(lambda: record.attempts(client))
    assert [one["finish"] for one in record.attempts(client)] == ["cancelled"]
    assert_runs_without_metering(run, client)


def test_fetched_inputs_are_no_runs(client: Client, tmp_path: Path) -> None:
    first, second = client.nthreads()
    with dasfprof.profile(client, directory=tmp_path) as run:
        there = client.submit(bytes, 1000, key="there", workers=[first])
        here = client.submit(len, there, key="here", workers=[second])
        assert here.result() == 1000
    assert_runs_without_metering(run, client)
    assert sorted(row["key"] for row in computed(run)) == ["here", "there"]
