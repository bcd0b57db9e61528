"""Recorded events survive when processes die, join and leave, compared with Dask's record."""

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
from distributed import Client, Future
from recorded_facts import assert_same_runs, assert_whole, computed, facts, read, trace_files

import dasfprof
from dasfprof.analysis import Trace
from dasfprof.database.following import Writer, writer_of
from dasfprof.database.reader import TraceFile

#: Seconds by which a busy machine, and a quiet one, may delay the writer's thread of a worker.
PATIENCE, QUIET_PATIENCE = 10.0, 1.5


@pytest.fixture(scope="module")
def cluster_client() -> Iterator[Client]:
    with (
        # A worker that is missing some time after one with its name was lost is abandoned.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        new_client(n_workers=2, threads_per_worker=2) as client,
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
    # The traceback of a failed test holds its futures, and the next test would wait for them.
    held = [Future(key, cluster_client) for key in list(cluster_client.futures)]
    cluster_client.cancel(held, force=True)


def addresses(client: Client) -> list[str]:
    return list(client.nthreads())


def two_workers(client: Client) -> None:
    record.wait_until(lambda: len(addresses(client)) == 2)


def scheduler_keys(client: Client) -> set[Any]:
    """Return the keys that the scheduler has not released."""
    gc.collect()
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))


def work(i: int) -> int:
    time.sleep(0.002)
    return i * i


def memory_runs(client: Client) -> list[dict[str, Any]]:
    """Return the successful task runs in the scheduler's record."""
    return record.outcomes(client, "memory")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
)
def test_kill_at_any_moment(client: Client, tmp_path: Path, seed: int, request: Any) -> None:
    patience = QUIET_PATIENCE if request.config.getoption("--long") else PATIENCE
    choose = random.Random(seed)
    flush_interval, threshold = choose.choice([0.02, 0.2, 0.5]), choose.choice([20, 5000])
    options = {"flush_interval": flush_interval, "commit_threshold": threshold}
    before = addresses(client)
    victim = choose.choice(before)
    (pid,) = client.run(os.getpid, workers=[victim]).values()
    with dasfprof.profile(client, directory=tmp_path, **options) as run:
        keys = [(f"load-{seed}", i) for i in range(800)]
        futures = client.map(work, range(800), key=keys)
        record.wait_until(lambda: record.count_on(client, victim) > 20)
        # Events older than the flush interval are on disk without a call of flush.
        record.wait_until(lambda: victim in {r["address"] for r in computed(tmp_path)}, every=0.1)
        time.sleep(choose.uniform(0.0, 0.5))
        killed_at = time.time()
        os.kill(pid, signal.SIGKILL)
        assert client.gather(futures) == [i * i for i in range(800)]
        two_workers(client)
        (new,) = set(addresses(client)) - set(before)
        assert client.submit(work, 3, key=f"on-the-new-{seed}", workers=[new]).result() == 9

    recorded = {(row["key"], row["run_id"]): row for row in computed(run)}
    known = {(one["key"], one["run_id"]): one for one in memory_runs(client)}
    missing = known.keys() - recorded.keys()
    # All events of other processes are present, including the worker's new process.
    from_victim = {each for each, row in recorded.items() if row["address"] == victim}
    assert recorded.keys() - from_victim <= known.keys()
    assert {one["worker"] for one in known.values()} == {*before, new}
    assert {known[each]["worker"] for each in missing} <= {victim}
    assert all(known[each]["stop"] > killed_at - flush_interval - patience for each in missing)
    for each in known.keys() & recorded.keys():
        assert recorded[each]["address"] == known[each]["worker"]
        seconds = known[each]["stop"] - known[each]["start"]
        assert recorded[each]["duration"] == pytest.approx(seconds, abs=2e-6)
    for path in run.files():
        file = read(path)
        is_whole = file.header.get("worker", {}).get("address") != victim
        assert (file.end is not None) == is_whole
        assert not file.damage if is_whole else not file.damage.corrupt_bytes
        assert not file.damage.unreadable
        assert (file.errors, file.dropped) == (0, 0)
    # The analysis names the worker and its missing data.
    trace = Trace.from_database(run.database(), progress=False)
    workers = trace.workers[trace.workers["address"].notna()]
    assert set(workers.loc[~workers["closed"].astype(bool), "address"]) == {victim}
    lost = trace.scheduler_only[trace.scheduler_only["lost"].astype(bool)]
    assert set(trace.keys.keys(lost["key_id"].to_numpy())) == {key for key, _ in missing}


def squares(client: Client, name: str, count: int = 50, **where: Any) -> None:
    """Run tasks and release their results, which would be recomputed if a worker left."""
    keys = [f"{name}-{i}" for i in range(count)]
    futures = client.map(work, range(count), key=keys, **where)
    assert client.gather(futures) == [i * i for i in range(count)]
    del futures
    record.wait_until(lambda: not scheduler_keys(client) & set(keys))


def squares_on_each(client: Client, name: str) -> None:
    """Run tasks, at least one on each worker, since one might run all tasks on a busy machine."""
    for place, address in enumerate(addresses(client)):
        squares(client, f"{name}-{place}", 1, workers=[address])


def test_workers_that_come_late_retire_and_restart(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path, flush_interval="1h") as run:
        squares(client, "with-two")
        first = addresses(client)
        squares_on_each(client, "before")
        client.cluster.scale(3)
        record.wait_until(lambda: len(addresses(client)) == 3)
        (late,) = set(addresses(client)) - set(first)
        squares(client, "with-three")
        squares(client, "on-late", 1, workers=[late])
        client.retire_workers([late])
        record.wait_until(lambda: late not in addresses(client))
        # Its files are complete while the others continue.
        record.wait_until(lambda: all(closed(tmp_path, late)))
        client.cluster.scale(2)
        two_workers(client)
        squares(client, "with-two-again")
        client.restart()
        two_workers(client)
        second = addresses(client)
        squares_on_each(client, "after")
    assert not {*first, late} & set(second)
    assert_whole(run)
    assert_same_runs(run, memory_runs(client))
    assert {row["address"] for row in computed(run)} == {*first, late, *second}
    assert len(trace_files(run, "TracePlugin")) == 5
    left = {row["worker"] for row in facts(run, "SchedulerPlugin", "Worker Removed")}
    assert left == {*first, late}


def closed(directory: Path, address: str) -> list[bool]:
    files = map(read, directory.glob("*.msgpack"))
    of_worker = [f for f in files if f.header.get("worker", {}).get("address") == address]
    return [file.end is not None for file in of_worker] or [False]


def test_retired_workers_have_everything_on_disk(tmp_path: Path) -> None:
    """After the call, which DASF's executor uses to shut down, no event is missing or truncated."""
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
    # A separate thread closes the client's file, late on a busy machine.
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


@pytest.mark.whole_program
@pytest.mark.parametrize("where", ["processes", "threads"])
def test_script_that_closes_nothing(tmp_path: Path, where: str) -> None:
    """As in the tutorial, the exit of Python closes the cluster and its files."""
    script, traces = tmp_path / "script.py", tmp_path / "traces"
    script.write_text(textwrap.dedent(LEFT))
    command = [sys.executable, str(script), str(traces), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
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


def test_two_clusters_into_one_directory(tmp_path: Path) -> None:
    """The runs may have the same name: the second one's files get numbers."""
    sizes = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    options: dict[str, Any] = {"name": "same", "add_time_suffix": False, "directory": tmp_path}
    runs, done = [], []
    with new_client(**sizes) as first, new_client(**sizes) as second:
        for client in (first, second):
            record.install(client)
            runs.append(dasfprof.register_default_profiler(client, **options))
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


#: Clock offset (s) of the cluster in this process.
clock_error = [0.0]


def set_back(seconds: float) -> None:
    clock_error[0] -= seconds
    time.sleep(0.05)


def test_clock_set_back_while_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("plugins.tasks", "plugins.scheduler", "probes.host")
    for module in [f"dasfprof.recording.{name}" for name in ours] + [
        "distributed.worker",
        "distributed.scheduler",
    ]:
        monkeypatch.setattr(f"{module}.time", lambda: time.time() + clock_error[0])
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
    for kind in ("TracePlugin Compute", "TracePlugin Transfer", "SchedulerPlugin Task Run"):
        assert min(row["duration"] for row in facts(run, *kind.split(" ", 1))) >= 0
    assert len(computed(run)) == 43
    analyser = dasfprof.TraceAnalyser(run.database(), progress=False)
    assert analyser.per_task_bottleneck()["Duration (s)"].min() >= 0
    functions = analyser.per_function_bottleneck()
    assert functions["Num Tasks (chunks)"].sum() == 43
    assert functions["Duration (s)"].min() >= 0
    assert len(analyser.per_worker_task_balance()) < 1000
