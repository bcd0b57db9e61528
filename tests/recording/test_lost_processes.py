"""The scheduler or the client is killed: what workers recorded is on disk all the same."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import independent_record as record
import pytest
from dask.highlevelgraph import HighLevelGraph
from dask_processes import Processes, is_alive
from recorded_facts import computed, facts, trace_files, without_texts
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.database.reader import TraceFile
from dasfprof.recording.steps import recorder as step_recorder

pytestmark = pytest.mark.whole_program


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


def read(path: Path) -> TraceFile:
    file = TraceFile(path)
    for _ in file.batches():
        pass
    return file


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def test_killed_scheduler(processes: Processes, tmp_path: Path) -> None:
    scheduler, workers = processes.cluster(True, False)
    traces = tmp_path / "traces"
    with processes.client() as client:
        client.wait_for_workers(2)
        record.install(client)
        for recorder in step_recorder._recorders.copy():
            recorder.stop()
        before = vars(HighLevelGraph)["from_collections"]
        run = dasfprof.register_default_profiler(
            client, directory=traces, flush_interval="1h", commit_threshold=100
        )
        futures = client.map(pow, range(50), [2] * 50, key=[("early", i) for i in range(50)])
        client.gather(futures)
        run.flush()
        late = client.map(pow, range(50), [2] * 50, key=[("late", i) for i in range(50)])
        client.gather(late)
        done = {(one["key"], one["run_id"]) for one in record.outcomes(client, "memory")}
        scheduler.send_signal(signal.SIGKILL)
        record.wait_until(lambda: all(ended(worker) for worker in workers))
        # Nobody has called stop() yet.
        record.wait_until(lambda: vars(HighLevelGraph)["from_collections"] is before)
        run.stop()
        assert "stopped" in repr(run)
    assert len(done) == 100
    assert {(row["key"], row["run_id"]) for row in computed(traces)} == done
    files = [
        file
        for plugin in ("TracePlugin", "ResourceMonitor")
        for file in trace_files(traces, plugin)
    ]
    assert len(files) == 4
    for file in files:
        whole = read(file.path)
        assert whole.end is not None
        assert not whole.damage
        assert (whole.errors, whole.dropped) == (0, 0)
    (path,) = (file.path for file in trace_files(traces, "SchedulerPlugin"))
    cut = read(path)
    assert cut.end is None
    assert not cut.damage.corrupt_bytes
    seen = {row["key"] for row in facts(traces, "SchedulerPlugin", "Task Run")}
    assert {("early", i) for i in range(50)} <= seen


def naps_are_known(traces: Path) -> bool:
    """Return whether the scheduler's file tells of the naps of 10,000 tasks."""
    states = facts(traces, "SchedulerPlugin", "Scheduler State")
    return bool(states) and states[-1]["unfinished"] > 1000


def test_the_diagnosis_says_that_a_killed_scheduler_is_gone(
    processes: Processes, tmp_path: Path
) -> None:
    scheduler, workers = processes.cluster(False, False)
    traces = tmp_path / "traces"
    with processes.client() as client:
        client.wait_for_workers(2)
        run = dasfprof.register_default_profiler(client, directory=traces)
        naps = client.map(time.sleep, [0.05] * 10_000, pure=False)
        record.wait_until(lambda: naps_are_known(traces))
        scheduler.send_signal(signal.SIGKILL)
        record.wait_until(lambda: all(map(ended, workers)))
        run.stop()
    del naps
    findings = TraceAnalyser(traces, progress=False).findings()
    (finding,) = [one for one in findings if one.rule == "unfinished-run"]
    said = finding.text
    assert "were unfinished" in said
    assert "The scheduler's process ended without closing its file." in said
    assert refute(traces, [finding]) == []


def test_frozen_scheduler(
    processes: Processes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be stopped now: that is said, and the next call does it."""
    scheduler, _ = processes.cluster(False)
    with processes.client() as client:
        client.wait_for_workers(1)
        run = dasfprof.register_default_profiler(client, directory=tmp_path / "traces")
        assert client.submit(abs, -1, key="one-1").result() == 1
    scheduler.send_signal(signal.SIGSTOP)
    run._link.limit = 0.5
    run.stop()
    assert "not stopped: the scheduler" in repr(run)
    assert "is not stopped: the scheduler" in caplog.text
    scheduler.send_signal(signal.SIGCONT)
    run._link.limit = 30.0
    record.wait_until(lambda: run.stop() or ": stopped" in repr(run))
    assert [row["key"] for row in computed(run)] == ["one-1"]
    assert all(read(path).end is not None for path in run.files())


SCRIPT = """
    import os, sys, time
    import dasfprof
    from distributed import Client, LocalCluster

    if __name__ == "__main__":
        where, directory = sys.argv[1:]
        if where == "local":
            client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
        else:
            client = Client(scheduler_file=where, timeout=120)
        client.wait_for_workers(2)
        run = dasfprof.register_default_profiler(
            client, directory=directory, flush_interval={interval!r}
        )
        keys = [("mine", i) for i in range(50)]
        assert sum(client.gather(client.map(abs, range(50), key=keys))) == 1225
        naps = client.map(time.sleep, [0.05] * {naps}, pure=False)
        print("done", flush=True)
        time.sleep(600)
"""


def started_script(
    processes: Processes, where: str, traces: Path, interval: str, naps: int = 0
) -> Any:
    """Run a script until it has computed its tasks and waits to be killed, naps under way."""
    script = processes.directory / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(interval=interval, naps=naps)))
    process = processes.start(str(script), where, str(traces))
    assert process.stdout is not None
    assert process.stdout.readline() == b"done\n"
    return process


def both_sides(traces: Path) -> tuple[set[Any], set[Any]]:
    """Keys that ran, as workers and as the scheduler recorded them."""
    seen = facts(traces, "SchedulerPlugin", "Task Run")
    return {row["key"] for row in computed(traces)}, {row["key"] for row in seen}


def test_killed_client_of_a_cluster_that_lives_on(processes: Processes, tmp_path: Path) -> None:
    scheduler, workers = processes.cluster(True, False)
    traces = tmp_path / "traces"
    script = started_script(processes, str(processes.scheduler_file), traces, "1h")
    script.send_signal(signal.SIGKILL)
    script.wait()
    with processes.client() as client:
        futures = client.map(abs, range(50), key=[("another's", i) for i in range(50)])
        assert sum(client.gather(futures)) == 1225
        client.shutdown()
    record.wait_until(lambda: all(map(ended, [scheduler, *workers])))
    ran, sent = both_sides(traces)
    for side in (ran, sent):
        assert side - without_texts(side) == {("mine", i) for i in range(50)}
    # The attempts of others' tasks are told apart, of which a stolen task has several.
    assert 50 <= len(without_texts(ran)) <= len(without_texts(sent))
    for path in traces.iterdir():
        file = read(path)
        # The killed client left a file of its own if it had waited for a while.
        assert file.end is not None or "-StepRecorder-" in path.name, path
        assert not file.damage
        assert (file.errors, file.dropped) == (0, 0)


def test_killed_client_with_its_own_cluster(processes: Processes, tmp_path: Path) -> None:
    """The scheduler dies with it, and the nannies: what was flushed stays, and is diagnosed."""
    traces = tmp_path / "traces"
    script = started_script(processes, "local", traces, "200ms", naps=10_000)
    keys = {("mine", i) for i in range(50)}
    record.wait_until(lambda: naps_are_known(traces), every=0.2)
    record.wait_until(lambda: all(keys <= side for side in both_sides(traces)), every=0.2)
    pids = {file.read_header()["pid"] for file in trace_files(traces, "TracePlugin")}
    script.send_signal(signal.SIGKILL)
    script.wait()
    record.wait_until(lambda: not any(map(is_alive, pids)))
    assert all(keys <= side for side in both_sides(traces))
    for path in traces.iterdir():
        file = read(path)
        assert not file.damage.corrupt_bytes
        assert not file.damage.unreadable
    findings = TraceAnalyser(traces, progress=False).findings()
    (finding,) = [one for one in findings if one.rule == "unfinished-run"]
    assert "The client's process, which also ran the scheduler," in finding.text
    assert refute(traces, [finding]) == []


def test_terminated_workers(processes: Processes, tmp_path: Path) -> None:
    """``dask worker`` ended with SIGTERM, as batch systems do, leaves whole files."""
    _, workers = processes.cluster(True, False)
    traces = tmp_path / "traces"
    with processes.client() as client:
        client.wait_for_workers(2)
        dasfprof.register_default_profiler(client, directory=traces, flush_interval="1h")
        client.gather(client.map(abs, range(50), key=[("mine", i) for i in range(50)]))
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        record.wait_until(lambda: all(map(ended, workers)))
        assert {row["key"] for row in computed(traces)} == {("mine", i) for i in range(50)}
        for plugin in ("TracePlugin", "ResourceMonitor"):
            assert [read(file.path).end is None for file in trace_files(traces, plugin)] == [
                False,
                False,
            ]
        client.shutdown()
