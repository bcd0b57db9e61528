"""Releases of results are recorded, and a trace knows whether it has them."""

import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
from clusters import client_of, new_client, wait_until
from distributed import Client, wait
from independent_record import clear, install
from recorded_facts import assert_whole, facts
from traces import Plan, Task

import dasfprof
from dasfprof import TraceAnalyser

client = client_of(2, 1, scope="function")


def released(client: Client) -> list[tuple[Any, int | None, float]]:
    return list(
        client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.plugins["independent-record"].releases
        )
    )


def add(*numbers: int) -> int:
    return sum(numbers)


def test_against_the_independent_record(client: Client, tmp_path: Path) -> None:
    install(client)
    clear(client)
    with dasfprof.profile(client, directory=tmp_path) as run:
        leaves = client.map(add, range(300), pure=False)
        scattered = client.scatter([1, 2, 3])  # not computed by tasks
        tuples = {("pair", n): (add, n, n) for n in range(50)}
        total = client.submit(add, *leaves)
        assert total.result() == sum(range(300))
        assert client.get({**tuples, "all": (add, *tuples)}, "all") == 2 * sum(range(50))
        del leaves, scattered
        kept = client.map(add, range(20), pure=False, workers=[next(iter(client.nthreads()))])
        wait(kept)
        wait_until(lambda: len(released(client)) >= 300 + 50 + 1 + 3)
        client.retire_workers([next(iter(client.nthreads()))], close_workers=True)
        del kept, total
        wait_until(lambda: len(released(client)) >= 300 + 50 + 1 + 3 + 21)
        expected = released(client)
    assert_whole(run)
    rows = facts(run, "SchedulerPlugin", "Result Released")
    told = {row["run_id"]: row["timestamp"] for row in rows}
    assert len(told) == len(rows) == 300 + 50 + 1 + 21
    assert told.keys() == {number for _, number, _ in expected if number is not None}
    for _, number, at in expected:
        if number is not None:
            assert abs(told[number] - at) < 10.0  # both plugins are called in one transition
            assert told[number] * 1024 % 1 == 0
    trace = TraceAnalyser(run.files(), progress=False).trace
    assert trace.knows_releases
    assert set(trace.releases["run_id"]) == told.keys()
    ended = dict(zip(trace.tasks["run_id"], trace.tasks["known"], strict=True))
    assert all(at >= ended[number] for number, at in told.items())


def test_an_older_trace_does_not_know(tmp_path: Path) -> None:
    trace = Plan([Task("a-1", 0, 0.0, 1.0)]).write(tmp_path).trace
    assert not trace.knows_releases
    assert trace.releases.empty and list(trace.releases) == ["run_id", "time"]
    assert np.isfinite(trace.end)


def test_copies_that_are_dropped(tmp_path: Path) -> None:
    """Dask's list of replicas shows when a copy is dropped, and `memory_at` agrees with it."""
    with (
        dask.config.set({"distributed.scheduler.active-memory-manager.interval": "100ms"}),
        new_client(n_workers=2, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        here, there = client.nthreads()
        result = client.submit(bytes, 1_000_000, workers=[here], pure=False)
        wait(client.submit(len, result, workers=[there], pure=False))
        wait_until(lambda: len(client.who_has([result])[result.key]) == 1)
        (left,) = client.who_has([result])[result.key]
        time.sleep(0.3)  # leaves some time after the release
    analyser = TraceAnalyser(run.files(), progress=False)
    (row,) = facts(run, "SchedulerPlugin", "Copy Dropped")
    assert row["key"] == result.key
    assert {row["worker"], left} == {here, there}
    trace = analyser.trace
    (dropped,) = trace.copies_dropped["worker_id"]
    assert trace.workers["address"][dropped] == row["worker"]

    def held(at: float) -> list[str]:
        table = analyser.memory_at(at - trace.begin, by="worker")
        return sorted(table.loc[table["Function"] == "bytes", "Worker"].tolist())

    took = trace.tasks["start"][(trace.tasks["function"] == "len").to_numpy()]
    assert len(held(float(took.iloc[0]) + 0.0001)) == 2
    (label,) = trace.workers["worker"][(trace.workers["address"] == left).to_numpy()]
    (only,) = held(row["timestamp"] + 0.2)
    assert only.endswith(str(label))
