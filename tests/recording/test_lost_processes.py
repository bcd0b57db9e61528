"""If the scheduler or the client is killed, events that workers recorded are on disk."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import independent_record as record
import psutil
import pytest
from dask.highlevelgraph import HighLevelGraph
from dask_processes import Processes
from recorded_facts import computed, facts, read, trace_files, without_texts
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.steps import recorder as step_recorder

pytestmark = pytest.mark.whole_program


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def naps_are_known(traces: Path) -> bool:
    """Return whether the scheduler's file records the naps of 10,000 tasks."""
    states = facts(traces, "SchedulerPlugin", "Scheduler State")
    return bool(states) and states[-1]["unfinished"] > 1000


def unfinished(traces: Path) -> str:
    """Return the finding about the run's end, which no refuter contradicts."""
    findings = TraceAnalyser(traces, progress=False).findings()
    (finding,) = (each for each in findings if each.rule == "unfinished-run")
    assert refute(traces, [finding]) == []
    return finding.text


def test_killed_scheduler(processes: Processes, tmp_path: Path) -> None:
    scheduler, workers = processes.cluster(True, False)
    traces = tmp_path / "traces"
    with processes.client() as client:
        client.wait_for_workers(2)
        record.install(client)
        for recorder in step_recorder.steps.observers:
            recorder.stop()
        before = vars(HighLevelGraph)["from_collections"]
        options = {"flush_interval": "1h", "commit_threshold": 100}
        run = dasfprof.register_default_profiler(client, directory=traces, **options)
        futures = client.map(pow, range(50), [2] * 50, key=[("early", i) for i in range(50)])
        client.gather(futures)
        run.flush()
        late = client.map(pow, range(50), [2] * 50, key=[("late", i) for i in range(50)])
        client.gather(late)
        done = {(one["key"], one["run_id"]) for one in record.outcomes(client, "memory")}
        naps = client.map(time.sleep, [0.05] * 10_000, pure=False)
        record.wait_until(lambda: naps_are_known(traces))
        scheduler.send_signal(signal.SIGKILL)
        record.wait_until(lambda: all(ended(worker) for worker in workers))
        # stop() has not been called yet.
        record.wait_until(lambda: vars(HighLevelGraph)["from_collections"] is before)
        run.stop()
        assert "stopped" in repr(run)
    del naps
    assert len(done) == 100
    runs = {(row["key"], row["run_id"]) for row in computed(traces)}
    assert {each for each in runs if isinstance(each[0], tuple)} == done
    files = trace_files(traces, "TracePlugin") + trace_files(traces, "ResourceMonitor")
    assert len(files) == 4
    for file in files:
        assert_whole_file(file.path)
    (file,) = trace_files(traces, "SchedulerPlugin")
    cut = read(file.path)
    assert cut.end is None
    assert not cut.damage.corrupt_bytes
    seen = {row["key"] for row in facts(traces, "SchedulerPlugin", "Task Run")}
    assert {("early", i) for i in range(50)} <= seen
    assert "were unfinished" in unfinished(traces)
    assert "The scheduler's process ended without closing its file." in unfinished(traces)


def assert_whole_file(path: Path, closed: bool = True) -> None:
    file = read(path)
    assert file.end is not None or not closed, path
    assert (bool(file.damage), file.errors, file.dropped) == (False, 0, 0)


def test_frozen_scheduler(
    processes: Processes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """stop() reports that it cannot stop the run now, and succeeds in the next call."""
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
import sys, time
import dasfprof
from distributed import Client

directory, interval, naps, *scheduler_file = sys.argv[1:]
if scheduler_file:
    client = Client(scheduler_file=scheduler_file[0], timeout=120)
else:
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
client.wait_for_workers(2)
run = dasfprof.register_default_profiler(client, directory=directory, flush_interval=interval)
keys = [("mine", i) for i in range(50)]
assert sum(client.gather(client.map(abs, range(50), key=keys))) == 1225
naps = client.map(time.sleep, [0.05] * int(naps), pure=False)
print("done", flush=True)
time.sleep(600)
"""


def started_script(processes: Processes, *arguments: Any) -> Any:
    """Run a script until it has computed its tasks, and waits with naps in progress."""
    process = processes.start("-c", SCRIPT, *map(str, arguments))
    assert process.stdout.readline() == b"done\n"
    return process


def both_sides(traces: Path) -> tuple[set[Any], set[Any]]:
    """Return the keys that ran, as recorded by workers and by the scheduler."""
    seen = facts(traces, "SchedulerPlugin", "Task Run")
    return {row["key"] for row in computed(traces)}, {row["key"] for row in seen}


def test_killed_client_of_a_cluster_that_lives_on(processes: Processes, tmp_path: Path) -> None:
    scheduler, workers = processes.cluster(True, False)
    traces = tmp_path / "traces"
    script = started_script(processes, traces, "1h", 0, processes.scheduler_file)
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
    # Attempts of other clients' tasks are distinguished; a stolen task has several.
    assert 50 <= len(without_texts(ran)) <= len(without_texts(sent))
    for path in traces.iterdir():
        # The killed client left a file if it had waited for a while.
        assert_whole_file(path, closed="-StepRecorder-" not in path.name)


def test_killed_client_with_its_own_cluster(processes: Processes, tmp_path: Path) -> None:
    """Scheduler and nannies die too. Flushed events remain and are diagnosed."""
    traces = tmp_path / "traces"
    script = started_script(processes, traces, "200ms", 10_000)
    keys = {("mine", i) for i in range(50)}
    record.wait_until(lambda: naps_are_known(traces), every=0.2)
    record.wait_until(lambda: all(keys <= side for side in both_sides(traces)), every=0.2)
    pids = {file.read_header()["pid"] for file in trace_files(traces, "TracePlugin")}
    script.send_signal(signal.SIGKILL)
    script.wait()
    record.wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    assert all(keys <= side for side in both_sides(traces))
    for path in traces.iterdir():
        file = read(path)
        assert not file.damage.corrupt_bytes
        assert not file.damage.unreadable
    assert "The client's process, which also ran the scheduler," in unfinished(traces)


def test_terminated_workers(processes: Processes, tmp_path: Path) -> None:
    """``dask worker`` leaves complete files after SIGTERM, which batch systems send."""
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
            assert len(trace_files(traces, plugin)) == 2
            assert all(read(file.path).end is not None for file in trace_files(traces, plugin))
        client.shutdown()
