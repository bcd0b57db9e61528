"""Samples of the resource monitor, compared with psutil in another process and with Dask."""

import itertools
import math
import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
from clusters import client_of, new_client, wait_until
from distributed import Client, wait
from recorded_facts import assert_whole, facts

import dasfprof
from dasfprof.analysis.trace import Trace
from dasfprof.recording.probes.process import ProcessUsage

INTERVAL = 0.05

client = client_of(2, 1)


def usage(source: Any) -> list[dict[str, Any]]:
    return facts(source, "ResourceMonitor", "Resource Usage")


def managed(source: Any) -> list[dict[str, Any]]:
    return facts(source, "ResourceMonitor", "Managed Memory")


def of_worker(rows: list[dict[str, Any]], address: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["address"] == address]


def addresses(client: Client) -> list[str]:
    client.wait_for_workers(2, timeout=120)  # a worker may be late on a busy machine
    return list(client.nthreads())


def pids(client: Client) -> dict[str, int]:
    return dict(client.run(os.getpid))


def burn(seconds: float) -> float:
    start = time.thread_time()
    while (spent := time.thread_time() - start) < seconds:
        sum(range(1000))
    return spent


def test_rate_of_samples_and_one_reading_of_the_host(client: Client, tmp_path: Path) -> None:
    net_before, before = psutil.net_io_counters(nowrap=False), time.monotonic()
    with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:
        started = time.monotonic()
        client.submit(time.sleep, 3.0, key="a-while").result()
        ended = time.monotonic()
    elapsed, net_after = time.monotonic() - before, psutil.net_io_counters(nowrap=False)
    assert_whole(run)
    for address in addresses(client):
        for rows in (of_worker(usage(run), address), of_worker(managed(run), address)):
            # There are two more, at the start and at the end. On a busy machine, there are fewer.
            assert (ended - started) / INTERVAL / 10 <= len(rows) <= elapsed / INTERVAL + 3
            times = [row["timestamp"] for row in rows]
            assert times == sorted(times)
            # By default, intervals are ten times as long. Delays hardly change the median.
            apart = [late - early for early, late in itertools.pairwise(times)]
            assert statistics.median(apart) <= 5 * INTERVAL
    assert_one_at_a_time(run)
    read = [row for row in usage(run) if row["host_memory_total"] is not None]
    read.sort(key=lambda row: row["timestamp"])
    host = of_worker(read, read[0]["address"])
    assert len(host) >= 2
    assert {row["host_memory_total"] for row in host} == {psutil.virtual_memory().total}
    for row in host:
        assert 0 < row["host_memory_used"] < row["host_memory_total"]
        received, sent = row["host_net_io.read_size"], row["host_net_io.write_size"]
        assert net_before.bytes_recv <= received <= net_after.bytes_recv
        assert net_before.bytes_sent <= sent <= net_after.bytes_sent
    # Shares and rates are unknown before the second reading.
    assert host[0]["host_cpu"] is host[0]["host_net_io.read_bps"] is None
    for last, row in itertools.pairwise(host):
        assert 0 <= row["host_cpu"] <= 100
        seconds = row["monotonic"] - last["monotonic"]
        moved = row["host_net_io.read_size"] - last["host_net_io.read_size"]
        assert row["host_net_io.read_bps"] * seconds == pytest.approx(moved, rel=1e-3, abs=1)
    samples = Trace.from_database(tmp_path).samples
    assert (samples["host_read"] == 1).sum() == len(read)
    later = samples[samples["time"] > read[0]["timestamp"]]
    assert (later["host_read"] == 0).sum() > len(read)  # all samples of the other worker
    for name in ("host_memory_available", "host_net_io.read_size", "host_disk_io.write_size"):
        expected = [
            next(row[name] for row in reversed(read) if row["timestamp"] <= at)
            for at in later["time"]
        ]
        numbers = [math.nan if value is None else value for value in expected]
        np.testing.assert_allclose(later[name].to_numpy(dtype=float), numbers)


def test_process_readings_are_those_from_outside(client: Client, tmp_path: Path) -> None:
    worker = addresses(client)[0]
    process = psutil.Process(pids(client)[worker])
    size = 100_000_000
    with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:
        client.submit(burn, 0.01, key="warm", workers=[worker]).result()
        rss_before, seconds_before = process.memory_info().rss, sum(process.cpu_times()[:2])
        held = client.submit(bytearray, size, key="hold", workers=[worker])
        wait(held)
        spent = client.submit(burn, 0.5, key="burn", workers=[worker]).result()
        # They include descriptors and threads that earlier tasks have opened.
        counted = 2 * ProcessUsage.COUNT_INTERVAL
        client.submit(time.sleep, counted, key="counted", workers=[worker]).result()
        rss_held, seconds_after = process.memory_info().rss, sum(process.cpu_times()[:2])
        fds, threads = process.num_fds(), process.num_threads()
    rows = of_worker(usage(run), worker)
    assert rss_held - rss_before > 0.9 * size
    assert abs(max(row["memory"] for row in rows) - rss_held) < 0.2 * size
    assert abs(min(row["memory"] for row in rows) - rss_before) < 0.2 * size
    assert min(abs(row["num_fds"] - fds) for row in rows) <= 2
    assert min(abs(row["num_threads"] - threads) for row in rows) <= 2
    # The kernel counts CPU seconds in ticks of 10 ms.
    recorded = rows[-1]["process_cpu_seconds"] - rows[0]["process_cpu_seconds"]
    assert recorded >= spent - 0.02
    assert recorded >= seconds_after - seconds_before - 0.02
    # Percentages are these seconds relative to the time since the last row with a value.
    told = [row for row in rows if row["cpu"] is not None]
    integral = sum(
        row["cpu"] / 100 * (row["monotonic"] - last["monotonic"])
        for last, row in itertools.pairwise(told)
    )
    seconds = told[-1]["process_cpu_seconds"] - told[0]["process_cpu_seconds"]
    assert integral == pytest.approx(seconds, rel=0.01, abs=0.03)


def on_duty(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the times of rows with values of the host, by worker."""
    times: dict[str, list[float]] = {}
    for row in rows:
        if row["host_memory_total"] is not None:
            times.setdefault(row["address"], []).append(row["timestamp"])
    return times


def assert_one_at_a_time(run: Any) -> None:
    """Assert that only one worker at a time samples the host, also when workers end."""
    spans = sorted((min(times), max(times)) for times in on_duty(usage(run)).values())
    assert spans
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_host_duty_moves_when_its_holder_is_killed(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:

        def holders() -> dict[str, list[float]]:
            run.flush()
            return on_duty(usage(tmp_path))

        (first,) = wait_until(holders)
        os.kill(pids(client)[first], signal.SIGKILL)
        wait_until(lambda: len(holders()) > 1)
        wait_until(lambda: len(addresses(client)) == 2 and first not in addresses(client))
    assert_one_at_a_time(run)


def test_a_blocked_event_loop_shows(client: Client, tmp_path: Path) -> None:
    blocked, free = addresses(client)
    with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:
        client.submit(time.sleep, 0.5, key="quiet", workers=[free]).result()
        client.run(time.sleep, 1.5, workers=[blocked])  # blocks the event loop
        client.submit(time.sleep, 0.5, key="quiet-again", workers=[blocked]).result()
    lags = [row["loop_lag"] for row in of_worker(managed(run), blocked)]
    assert 0.5 <= max(lag for lag in lags if lag is not None) < 30
    others = [row["loop_lag"] for row in of_worker(managed(run), free)]
    assert min(lag for lag in others if lag is not None) < 0.3


def test_what_a_worker_holds(client: Client, tmp_path: Path) -> None:
    worker = addresses(client)[0]

    def held(dask_scheduler: Any) -> tuple[int, int]:
        state = dask_scheduler.workers[worker]
        return len(state.has_what), state.nbytes

    wait_until(lambda: client.run_on_scheduler(held)[0] == 0)  # results of other tests are released
    with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:
        results = client.map(bytes, range(1000, 1005), workers=[worker])
        wait(results)
        expected = client.run_on_scheduler(held)
        started = client.submit(time.sleep, 2.0, key="busy", workers=[worker])
        wait([started, client.submit(abs, -1, key="behind", workers=[worker])])
    assert expected[0] == 5
    rows = of_worker(managed(run), worker)
    assert expected in [(row["tasks"], row["size"]) for row in rows]
    assert max(row["executing"] for row in rows) == 1
    # Both may be ready for a moment before the first one starts.
    assert (1, 1) in [(row["executing"], row["ready"]) for row in rows]
    assert {row["state"] for row in rows} == {"running"}
    assert {row["spilled_size"] for row in rows} == {0}


def test_spilling_and_pausing(tmp_path: Path) -> None:
    limit = 100_000_000_000
    memory = {"target": 300_000 / limit, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": at for name, at in memory.items()}),
        new_client(n_workers=1, threads_per_worker=1, memory_limit=limit) as client,
    ):

        async def pause(dask_worker: Any) -> None:
            dask_worker.memory_manager.memory_pause_fraction = 1e-6
            await dask_worker.memory_manager.memory_monitor(dask_worker)

        def spilled(dask_worker: Any) -> tuple[int, float]:
            data = dask_worker.data
            return data.spilled_total.disk, data.cumulative_metrics["disk-write", "bytes"]

        def memory_sizes(dask_worker: Any) -> tuple[int, int]:
            # Dask limits it to the memory of the machine.
            manager = dask_worker.memory_manager
            return manager.memory_limit, int(manager.memory_limit * manager.memory_target_fraction)

        with dasfprof.profile(client, directory=tmp_path, sample_interval=INTERVAL) as run:
            wait_until(lambda: managed(flushed(run)))
            big = client.map(bytes, [200_000 + i for i in range(6)])
            wait(big)
            client.submit(len, big[0], key="reads-it-back").result()
            on_disk, written = next(iter(client.run(spilled).values()))
            sizes = next(iter(client.run(memory_sizes).values()))
            client.run(pause)
            wait_until(lambda: {row["state"] for row in managed(flushed(run))} >= {"paused"})
    rows = managed(run)
    assert on_disk > 0
    assert rows[0]["spilled_size"] == rows[0]["spill_write_size"] == 0
    assert rows[-1]["spilled_size"] == on_disk
    assert rows[-1]["spill_write_size"] == written
    assert rows[-1]["spill_write"] > 0
    assert rows[-1]["spill_read_size"] > 0
    assert {"running", "paused"} <= {row["state"] for row in rows}
    workers = run.analyser().trace.workers.set_index("kind").loc["worker"]
    assert (workers["memory_limit"], workers["memory_target"]) == sizes
    assert np.isnan(workers["memory_spill"])
    assert np.isnan(workers["memory_pause"])  # the value when recording started


def flushed(run: Any) -> Any:
    run.flush()
    return run
