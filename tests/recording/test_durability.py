"""What survives when processes die, come and go: on real processes, against Dask's own account."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import independent_record as record
import pytest
from clusters import new_client
from distributed import Client, Future, LocalCluster
from recorded_facts import assert_same_runs, assert_whole, computed, facts, trace_files

import dasfprof
from dasfprof.analysis import Trace
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.reader import TraceFile

#: Seconds by which a busy machine may delay the writing thread of a worker; on a quiet one.
PATIENCE, QUIET_PATIENCE = 10.0, 1.5


@pytest.fixture(scope="module")
def cluster_client() -> Iterator[Client]:
    with (
        # Who is gone a while after a worker of its name was lost is given up for good.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        record.install(client)
        yield client


@pytest.fixture
def client(cluster_client: Client) -> Iterator[Client]:
    two_workers(cluster_client)
    record.wait_until(lambda: not scheduler_keys(cluster_client))
    record.clear(cluster_client)
    yield cluster_client
    two_workers(cluster_client)
    # The traceback of a test that failed holds its futures, and the next test would wait for them.
    held = [Future(key, cluster_client) for key in list(cluster_client.futures)]
    cluster_client.cancel(held, force=True)


def addresses(client: Client) -> list[str]:
    return list(client.nthreads())


def two_workers(client: Client) -> None:
    record.wait_until(lambda: len(addresses(client)) == 2)


def scheduler_keys(client: Client) -> set[Any]:
    """Keys that the scheduler has not let go of."""
    gc.collect()
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))


def work(i: int) -> int:
    time.sleep(0.002)
    return i * i


def read(path: Path) -> TraceFile:
    file = TraceFile(path)
    for _ in file.batches():
        pass
    return file


def memory_runs(client: Client) -> list[dict[str, Any]]:
    """The task runs that the scheduler knows to have ended well."""
    return record.outcomes(client, "memory")


# --- a worker is killed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
)
def test_worker_killed_at_any_moment(
    client: Client, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    patience = QUIET_PATIENCE if request.config.getoption("--long") else PATIENCE
    choose = random.Random(seed)
    flush_interval = choose.choice([0.02, 0.2, 0.5])
    options = {"flush_interval": flush_interval, "commit_threshold": choose.choice([20, 5000])}
    before = addresses(client)
    victim = choose.choice(before)
    (pid,) = client.run(os.getpid, workers=[victim]).values()
    with dasfprof.profile(client, directory=tmp_path, **options) as run:
        keys = [(f"load-{seed}", i) for i in range(800)]
        futures = client.map(work, range(800), key=keys)
        record.wait_until(lambda: record.count_on(client, victim) > 20)
        # What is older than the interval is on disk, and nobody has asked for that.
        record.wait_until(
            lambda: any(row["address"] == victim for row in computed(tmp_path)), every=0.1
        )
        time.sleep(choose.uniform(0.0, 0.5))
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        assert client.gather(futures) == [i * i for i in range(800)]
        two_workers(client)
        (new,) = set(addresses(client)) - set(before)
        assert client.submit(work, 3, key=f"on-the-new-{seed}", workers=[new]).result() == 9

    ours = {(r["key"], r["run_id"]): r for r in computed(run) if r["address"] == victim}
    known = {(r["key"], r["run_id"]): r for r in memory_runs(client) if r["worker"] == victim}
    assert len(known) > 20
    missing = known.keys() - ours.keys()
    assert len(missing) <= 5000
    assert all(known[key]["stop"] > killed_at - flush_interval - patience for key in missing)
    for key in known.keys() & ours.keys():
        seconds = known[key]["stop"] - known[key]["start"]
        assert ours[key]["duration"] == pytest.approx(seconds, abs=2e-6)
    # All that others did is there, the new process of the worker included.
    others = [r for r in memory_runs(client) if r["worker"] != victim]
    assert {r["worker"] for r in others} == {*before, new} - {victim}
    recorded = {(r["key"], r["run_id"]) for r in computed(run) if r["address"] != victim}
    assert recorded == {(r["key"], r["run_id"]) for r in others}
    for path in run.files():
        file = read(path)
        whole = file.header.get("worker", {}).get("address") != victim
        assert (file.end is not None) == whole
        assert not file.damage if whole else not file.damage.corrupt_bytes
        assert not file.damage.unreadable
        assert (file.errors, file.dropped) == (0, 0)
    # The analysis names the worker and what is missing of it.
    trace = Trace.from_database(run.database(), progress=False)
    workers = trace.workers[trace.workers["address"].notna()]
    assert set(workers.loc[~workers["closed"].astype(bool), "address"]) == {victim}
    lost = trace.scheduler_only[trace.scheduler_only["lost"].astype(bool)]
    assert set(trace.keys.keys(lost["key_id"].to_numpy())) == {key for key, _ in missing}


# --- workers come and go --------------------------------------------------------------------------


def squares(client: Client, name: str, count: int = 50, **where: Any) -> None:
    """Run tasks, and let go of their results: a worker that leaves must not have them run again."""
    keys = [f"{name}-{i}" for i in range(count)]
    futures = client.map(work, range(count), key=keys, **where)
    assert client.gather(futures) == [i * i for i in range(count)]
    del futures
    record.wait_until(lambda: not scheduler_keys(client) & set(keys))


def squares_on_each(client: Client, name: str) -> None:
    """Run a task on each worker: a crowded machine may let one of them run all others."""
    for place, address in enumerate(addresses(client)):
        squares(client, f"{name}-{place}", 1, workers=[address])


def test_restart_of_all_workers(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, flush_interval="1h") as run:
        squares(client, "before-restart")
        first = addresses(client)
        squares_on_each(client, "before")
        client.restart()
        two_workers(client)
        squares(client, "after-restart")
        second = addresses(client)
        squares_on_each(client, "after")
    assert not set(first) & set(second)
    assert_whole(run)
    assert_same_runs(run, memory_runs(client))
    writers = {row["address"] for row in computed(run)}
    assert writers == {*first, *second}
    assert len(trace_files(run, "TracePlugin")) == 4
    left = {row["worker"] for row in facts(run, "SchedulerPlugin", "Worker Removed")}
    assert left == set(first)


def test_retired_worker_and_workers_that_come_late(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, flush_interval="1h") as run:
        squares(client, "with-two")
        before = set(addresses(client))
        client.cluster.scale(3)
        record.wait_until(lambda: len(addresses(client)) == 3)
        (late,) = set(addresses(client)) - before
        squares(client, "with-three")
        assert client.submit(work, 2, key="on-late", workers=[late]).result() == 4
        client.retire_workers([late])
        record.wait_until(lambda: late not in addresses(client))
        late_runs = [row for row in memory_runs(client) if row["worker"] == late]
        # Its files are whole while the others go on.
        record.wait_until(lambda: all(closed(tmp_path, late)))
        client.cluster.scale(2)
        two_workers(client)
        squares(client, "with-two-again")
    assert late_runs
    assert_whole(run)
    assert_same_runs(run, memory_runs(client))


def closed(directory: Path, address: str) -> list[bool]:
    files = [read(path) for path in directory.glob("*.msgpack")]
    of_worker = [f for f in files if f.header.get("worker", {}).get("address") == address]
    return [file.end is not None for file in of_worker] or [False]


# --- everything is on disk ------------------------------------------------------------------------


def test_retired_workers_have_everything_on_disk(tmp_path: Path) -> None:
    """As DASF's executor shuts down: when the call has returned, nothing is missing or cut."""
    options = {"flush_interval": "1h", "commit_threshold": 90_000}
    with new_client(n_workers=1, threads_per_worker=1) as client:
        record.install(client)
        run = dasfprof.register_default_profiler(client, directory=tmp_path, **options)
        squares(client, "retired", 100)
        done = memory_runs(client)
        client.retire_workers(addresses(client), close_workers=True)
        assert_same_runs(run, done)
        assert len(facts(run, "SchedulerPlugin", "Task Run")) == 100
        for path in run.files():
            file = read(path)
            assert file.end is not None or writer_of(file.header) is Writer.ALIVE
        client.close()
    run.stop()
    assert "stopped" in repr(run)
    # A separate thread closes what the client recorded, late on a busy machine.
    record.wait_until(lambda: all(TraceFile(path).is_closed() for path in run.files()))
    assert_whole(run)


LEFT = """
    import sys
    import dasfprof
    from distributed import Client, LocalCluster

    if __name__ == "__main__":
        processes = sys.argv[2] == "processes"
        cluster = LocalCluster(n_workers=1, processes=processes, dashboard_address=None)
        client = Client(cluster)
        dasfprof.register_default_profiler(client, directory=sys.argv[1], flush_interval="1h")
        assert sum(client.gather(client.map(abs, range(50), key=[f"t-{i}" for i in range(50)])))
"""


@pytest.mark.parametrize("where", ["processes", "threads"])
def test_script_that_closes_nothing(tmp_path: Path, where: str) -> None:
    """As the tutorial ends: the interpreter's exit closes the cluster, and the files with it."""
    script, traces = tmp_path / "script.py", tmp_path / "traces"
    script.write_text(textwrap.dedent(LEFT))
    done = subprocess.run(
        [sys.executable, str(script), str(traces), where],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert "dasfprof" not in done.stderr
    assert {row["key"] for row in computed(traces)} == {f"t-{i}" for i in range(50)}
    assert len(facts(traces, "SchedulerPlugin", "Worker Removed")) == 1
    for path in traces.iterdir():
        file = read(path)
        assert file.end is not None, path
        assert (file.errors, file.dropped, bool(file.damage)) == (0, 0, False)


def test_work_that_waits_for_the_first_worker(tmp_path: Path) -> None:
    with new_client(n_workers=0, processes=False) as client:
        record.install(client)
        with dasfprof.profile(client, directory=tmp_path) as run:
            futures = client.map(work, range(5), key=[("waits", i) for i in range(5)])
            record.wait_until(lambda: len(scheduler_keys(client)) == 5)
            joined = time.time()
            client.cluster.scale(1)
            assert client.gather(futures) == [0, 1, 4, 9, 16]
        assert_same_runs(run, memory_runs(client))
    rows = facts(run, "SchedulerPlugin", "Task Run")
    assert len(rows) == 5
    assert all(row["queued"] <= joined <= row["timestamp"] for row in rows)


# --- several at once ------------------------------------------------------------------------------


def test_two_clusters_into_one_directory(tmp_path: Path) -> None:
    """Also under one name: the second cluster's files get numbers, and each knows its own."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    runs, done = [], []
    with (
        LocalCluster(**options, dashboard_address=None) as one,
        LocalCluster(**options, dashboard_address=None) as other,
        Client(one) as first,
        Client(other) as second,
    ):
        for client in (first, second):
            record.install(client)
            runs.append(
                dasfprof.register_default_profiler(
                    client, name="same", add_time_suffix=False, directory=tmp_path
                )
            )
        for name, client in (("first", first), ("second", second), ("both", first)):
            squares(client, name, 20)
        for client, run in zip((first, second), runs, strict=True):
            run.stop()
            done.append(memory_runs(client))
    for run, outcomes in zip(runs, done, strict=True):
        assert_same_runs(run, outcomes)
        assert_whole(run)
        assert len(run.files()) == 6
    assert not set(runs[0].files()) & set(runs[1].files())


# --- a clock that is set back ---------------------------------------------------------------------


#: Seconds by which the clock of the cluster in this process is off.
clock_error = [0.0]


def stepping() -> float:
    return time.time() + clock_error[0]


def set_back(seconds: float) -> None:
    clock_error[0] -= seconds
    time.sleep(0.05)


def test_clock_set_back_while_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("plugins.tasks", "plugins.scheduler", "probes.host"):
        monkeypatch.setattr(f"dasfprof.recording.{module}.time", stepping)
    monkeypatch.setattr("distributed.worker.time", stepping)
    monkeypatch.setattr("distributed.scheduler.time", stepping)
    clock_error[0] = 0.0
    with (
        new_client(n_workers=2, threads_per_worker=1, processes=False) as client,
        dasfprof.profile(client, directory=tmp_path, sample_interval=0.02) as run,
    ):
        squares(client, "before-step", 20)
        client.submit(set_back, 100.0, key="steps-the-clock").result()
        first = client.submit(bytes, 1000, key="there", workers=[addresses(client)[0]])
        client.submit(len, first, key="here", workers=[addresses(client)[1]]).result()
        squares(client, "after-step", 20)
    assert clock_error == [-100.0]
    for plugin, name in (
        ("TracePlugin", "Compute"),
        ("TracePlugin", "Transfer"),
        ("SchedulerPlugin", "Task Run"),
    ):
        rows = facts(run, plugin, name)
        assert rows
        assert min(row["duration"] for row in rows) >= 0
    assert len(computed(run)) == 43
    analyser = dasfprof.TraceAnalyser(run.database(), progress=False)
    assert analyser.per_task_bottleneck()["Duration (s)"].min() >= 0
    functions = analyser.per_function_bottleneck()
    assert functions["Num Tasks (chunks)"].sum() == 43
    assert functions["Duration (s)"].min() >= 0
    assert len(analyser.per_worker_task_balance()) < 1000
