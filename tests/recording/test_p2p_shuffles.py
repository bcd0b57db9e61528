"""P2P shuffles: CPU seconds of their tasks, and bytes that do not pass through Dask's transfers."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import client_of
from distributed import Client

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
    """Return the bytes that this worker's shuffles have sent, also to itself, as Dask counts."""
    sent = "background-comms", "process", "bytes"
    digests = dask_worker.digests_total.items()
    return sum(value for name, value in digests if name[0] == "p2p" and name[2:] == sent)


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
    """Rows are spread evenly over both workers, so that half of them go to the other worker."""
    analyser, sent = shuffled
    messages = analyser.trace.shuffle_messages
    addresses = analyser.trace.workers["address"].to_numpy(dtype=object)[messages["worker_id"]]
    assert (addresses != messages["target"].astype(object)).all()
    assert len(messages) >= PARTITIONS
    assert (messages["state"] == "success").all()
    assert messages["size"].sum() == pytest.approx(sent / 2, rel=0.2)
    assert sent > ROWS * PARTITIONS * 16

    facts = summarise(analyser.run)
    by_results = analyser.transfers()["Size (MB)"].sum() * 1e6
    assert facts["shuffled"] == pytest.approx(messages["size"].sum())
    assert facts["moved"] == pytest.approx(facts["shuffled"] + by_results)


def test_bytes_that_limiters_have_given_out_are_sampled(client: Client, tmp_path: Path) -> None:
    def take(dask_worker: Any, size: int) -> None:
        dask_worker.plugins["shuffle"].memory_limiter_disk.increase(size)

    async def give_back(dask_worker: Any, size: int) -> None:
        await dask_worker.plugins["shuffle"].memory_limiter_disk.decrease(size)

    worker = next(iter(client.nthreads()))
    with dasfprof.profile(client, directory=tmp_path) as run:
        time.sleep(0.3)
        for function in (take, give_back):
            client.run(function, size=5_000_000, workers=[worker])
            time.sleep(0.3)
    trace = TraceAnalyser(run.files(), progress=False).trace
    of_worker = trace.workers.index[trace.workers["address"] == worker]
    sizes = trace.managed_memory.groupby("worker_id")["p2p_size"].agg(["min", "max"])
    assert (sizes["min"] == 0).all()
    for number, most in sizes["max"].items():
        assert most == (5_000_000 if number in of_worker else 0)


def test_cpu_and_bytes_of_tasks(client: Client, shuffled: tuple[Any, float]) -> None:
    analyser, _ = shuffled
    p2p_tasks = analyser.trace.tasks[p2p_runs(analyser.trace)]
    assert set(p2p_tasks["function"]) == {"shuffle-transfer", "shuffle-barrier", "p2pshuffle"}
    splitting = p2p_tasks[p2p_tasks["function"] == "shuffle-transfer"]
    # Splitting 100,000 rows and writing them as Arrow takes milliseconds on any core.
    assert (splitting["cpu"] > 0.001).all()
    assert (splitting["cpu"] <= splitting["duration"] + 1e-3).all()
    table = analyser.per_function_bottleneck().set_index("Function")
    assert table.loc[["p2pshuffle"], "Mean Throughput (MB/s)"].isna().all()
    assert table.loc[["p2pshuffle"], "Mean Data Size (MB)"].isna().all()
    assert table.loc[["shuffle-transfer"], "Mean Throughput (MB/s)"].notna().all()

    def is_patched(dask_worker: Any) -> bool:
        return "process" in vars(names.P2P.find("CommShardsBuffer"))

    assert not any(client.run(is_patched).values())


def test_a_trace_without_messages_has_no_bytes_of_shuffles(shuffled: tuple[Any, float]) -> None:
    trace = shuffled[0].trace
    plain = Run.from_trace(
        dataclasses.replace(trace, shuffle_messages=trace.shuffle_messages.iloc[:0])
    )
    assert summarise(plain)["shuffled"] is None
    assert summarise(plain)["moved"] == pytest.approx(trace.transfers["size"].sum())
