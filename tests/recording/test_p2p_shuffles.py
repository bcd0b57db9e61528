"""P2P shuffles: the CPU seconds of their tasks, and the bytes that move past Dask's transfers."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import client_of
from distributed import Client
from distributed.metrics import context_meter

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.model.transfers import p2p_runs
from dasfprof.analysis.run import Run
from dasfprof.recording.dask_internals import names
from dasfprof.report.run_summary import summarise

dd = pytest.importorskip("dask.dataframe")

ROWS, PARTITIONS = 100_000, 8


client = client_of(2, 1)


def partition(number: int) -> pd.DataFrame:
    rows = np.arange(ROWS) + number * ROWS
    return pd.DataFrame({"key": rows % 997, "value": rows.astype(float)})


def all_digests(dask_worker: Any) -> float:
    """Give the bytes that this worker's shuffles have sent, to itself too, by Dask's own count."""
    return sum(
        value
        for name, value in dask_worker.digests_total.items()
        if isinstance(name, tuple)
        and name[0] == "p2p"
        and name[2:] == ("background-comms", "process", "bytes")
    )


@pytest.fixture(scope="module")
def shuffled(client: Client, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, float]:
    client.wait_for_workers(2)
    before = sum(client.run(all_digests).values())
    with dasfprof.profile(client, directory=tmp_path_factory.mktemp("run")) as run:
        frame = dd.from_map(partition, range(PARTITIONS)).shuffle("key", shuffle_method="p2p")
        assert frame.map_partitions(len).compute().sum() == ROWS * PARTITIONS
        sent = sum(client.run(all_digests).values()) - before
    return TraceAnalyser(run.files(), progress=False), sent


def test_bytes_are_those_that_went_to_the_other_worker(shuffled: tuple[Any, float]) -> None:
    """Rows are spread over both workers evenly, so that half of all go to the other one."""
    analyser, sent = shuffled
    table = analyser.transfers("shuffle")
    assert (table["From Worker"] != table["To Worker"]).all()
    assert table["Messages"].sum() >= PARTITIONS
    assert table["Failed"].sum() == 0
    assert table["Size (MB)"].sum() * 1e6 == pytest.approx(sent / 2, rel=0.2)
    assert sent > ROWS * PARTITIONS * 16

    facts = summarise(analyser.run)
    by_results = analyser.transfers()["Size (MB)"].sum() * 1e6
    assert facts["shuffled"] == pytest.approx(table["Size (MB)"].sum() * 1e6)
    assert facts["moved"] == pytest.approx(facts["shuffled"] + by_results)


def test_their_buffers_are_sampled(client: Client, tmp_path: Path) -> None:
    """What a shuffle's limiter has given out is what samples tell of its worker."""

    def take(dask_worker: Any, size: int) -> None:
        dask_worker.plugins["shuffle"].memory_limiter_disk.increase(size)

    async def give_back(dask_worker: Any, size: int) -> None:
        await dask_worker.plugins["shuffle"].memory_limiter_disk.decrease(size)

    worker = next(iter(client.nthreads()))
    with dasfprof.profile(client, directory=tmp_path) as run:
        time.sleep(0.3)
        client.run(take, size=5_000_000, workers=[worker])
        time.sleep(0.3)
        client.run(give_back, size=5_000_000, workers=[worker])
        time.sleep(0.3)
    trace = TraceAnalyser(run.files(), progress=False).trace
    of_worker = trace.workers.index[trace.workers["address"] == worker]
    sizes = trace.managed_memory.groupby("worker_id")["p2p_size"].agg(["min", "max"])
    assert (sizes["min"] == 0).all()
    for number, most in sizes["max"].items():
        assert most == (5_000_000 if number in of_worker else 0)


def test_their_tasks_use_the_cpu(shuffled: tuple[Any, float]) -> None:
    tasks = shuffled[0].trace.tasks
    own = tasks[p2p_runs(shuffled[0].trace)]
    assert set(own["function"]) == {"shuffle-transfer", "shuffle-barrier", "p2pshuffle"}
    splitting = own[own["function"] == "shuffle-transfer"]
    # To split 100,000 rows and write them as Arrow takes milliseconds of any core.
    assert (splitting["cpu"] > 0.001).all()
    assert (splitting["cpu"] <= splitting["duration"] + 1e-3).all()


def test_what_they_read_is_not_the_few_bytes_of_the_barrier(shuffled: tuple[Any, float]) -> None:
    table = shuffled[0].per_function_bottleneck().set_index("Function")
    assert table.loc[["p2pshuffle"], "Mean Throughput (MB/s)"].isna().all()
    assert table.loc[["p2pshuffle"], "Mean Data Size (MB)"].isna().all()
    assert table.loc[["shuffle-transfer"], "Mean Throughput (MB/s)"].notna().all()


def test_nothing_stays_in_dask(client: Client, shuffled: tuple[Any, float]) -> None:
    def placed(dask_worker: Any) -> bool:
        return "process" in vars(names.P2P.find("CommShardsBuffer"))

    assert not any(client.run(placed).values())


def burn_and_meter() -> tuple[float, float]:
    """Use 50 ms of CPU, and sleep 100 ms that are metered, which Dask takes from the CPU's."""
    begin = time.thread_time()
    while time.thread_time() < begin + 0.05:
        pass
    with context_meter.meter("nap"):
        time.sleep(0.1)
    return begin, time.thread_time()


def test_what_a_task_meters_is_not_taken_from_its_cpu(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        begin, end = client.submit(burn_and_meter, pure=False).result()
    tasks = TraceAnalyser(run.files(), progress=False).trace.tasks
    cpu = tasks.loc[tasks["function"] == "burn_and_meter", "cpu"].item()
    assert end - begin <= cpu + 1e-4
    assert cpu <= end - begin + 0.05


def test_a_trace_without_their_messages_says_so(shuffled: tuple[Any, float]) -> None:
    trace = shuffled[0].trace
    silent = dataclasses.replace(trace, shuffle_messages=trace.shuffle_messages.iloc[:0])
    plain = Run.from_trace(silent)
    assert summarise(plain)["shuffled"] is None
    assert summarise(plain)["moved"] == pytest.approx(trace.transfers["size"].sum())
