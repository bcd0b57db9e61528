"""Files that others remove, move or truncate: the missing data of a run are reported."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import client_of
from dask_processes import PATHS
from distributed import Client
from recorded_facts import facts, trace_files
from refuters import refute
from unrefuted import unrefuted

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.analysis.diagnosis import table_of
from dasfprof.cli.main import cli
from dasfprof.database.reader import TraceFile

client = client_of(2, 1)


def run_tasks(client: Client, name: str, count: int) -> None:
    futures = client.map(abs, range(count), key=[(name, i) for i in range(count)])
    assert client.gather(futures) == [*range(count)]


def events_in(path: Path) -> int:
    return sum(batch.rows for batch in TraceFile(path).batches())


def info(directory: Path) -> str:
    """Return the command's output with joined lines."""
    result = CliRunner().invoke(cli, ["info", str(directory)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def notes(analyser: TraceAnalyser, kind: str) -> list[str]:
    return [note.text for note in analyser.trace.notes if note.kind == kind]


def finding(analyser: TraceAnalyser, directory: Path) -> str:
    """Return the finding about the trace itself, which no refuter contradicts.

    Other findings are not compared with the events. If the first events are lost, refuters do not
    know how long the workers were there.
    """
    findings = [each for each in analyser.findings() if each.rule == "incomplete-trace"]
    assert not refute(directory, findings)
    table = table_of(findings)
    return " ".join(table[["Finding", "Evidence", "Suggestion"]].to_numpy().flatten())


def test_moved_directory(client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    traces, moved = tmp_path / "traces", tmp_path / "moved"
    with dasfprof.profile(client, name="mine", directory=traces) as run:
        run_tasks(client, "early", 100)
        run.flush()
        traces.rename(moved)
        run_tasks(client, "late", 50)
    files = sorted(moved.glob("*.msgpack"))
    gone = sum(map(events_in, files))
    assert gone > 200  # worker and scheduler record at least one event per task
    words = f"{gone:,} events"
    told = info(traces)
    assert f" lost {words} that had been written are missing" in told
    assert "It was removed, moved or unmounted while the run was recorded." in told
    analyser = TraceAnalyser(traces, progress=False)
    assert notes(analyser, "lost-events")[0].startswith(f"{words} that had been written")
    assert words in finding(analyser, traces)
    assert "moved can be put back" in finding(analyser, traces)
    # The scheduler is in this process.
    assert "was removed, moved, truncated or unmounted" in caplog.text
    assert not notes(analyser, "not-closed")
    # Each file records the number of earlier events.
    for path in files:
        (later,) = traces.glob(f"{path.stem}.segment0002.msgpack")
        assert TraceFile(later).read_header()["before"]["events"] == events_in(path)

    # No event is missing if the files are in one directory again.
    for path in files:
        path.rename(traces / path.name)
    assert " lost nothing " in info(traces)
    assert "continued in the next segment" in info(traces)
    trace = TraceAnalyser(traces, progress=False).trace
    assert len(trace.tasks) == 150
    kinds = {note.kind for note in trace.notes}
    assert kinds.isdisjoint({"lost-events", "segment-missing", "not-closed", "file-missing"})


@pytest.mark.parametrize("how", ["removed", "cut", "replaced"])
def test_a_file_that_is_lost_while_it_is_recorded(client: Client, tmp_path: Path, how: str) -> None:
    with dasfprof.profile(client, name="mine", directory=tmp_path) as run:
        run_tasks(client, f"early-{how}", 100)
        run.flush()
        victim = trace_files(tmp_path, "TracePlugin")[0].path
        before, size = events_in(victim), victim.stat().st_size
        if how == "cut":
            os.truncate(victim, size // 2)
        else:
            victim.unlink()
        if how == "replaced":
            victim.write_bytes(bytes(size + 1))
        run_tasks(client, f"late-{how}", 50)
    if how == "replaced":
        assert victim.read_bytes() == bytes(size + 1)
        victim.unlink()
    gone = before - (events_in(victim) if how == "cut" else 0)
    assert gone > 0
    words = f"{gone:,} events"
    told = info(tmp_path)
    assert f" lost {words} that had been written are missing" in told
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert notes(analyser, "lost-events")[0].startswith(words)
    (note,) = notes(analyser, "segment-missing")
    assert words in note
    cause = "it was truncated before" if how == "cut" else "It was removed, moved or unmounted"
    assert cause in note
    assert words in finding(analyser, tmp_path)
    assert lost_runs(told) == 150 - len(analyser.trace.tasks)


def lost_runs(told: str) -> int:
    counts = re.findall(r"(\d+) task runs? \([\d.]+ s\) that the scheduler recorded", told)
    return sum(map(int, counts))


@pytest.mark.parametrize("plugin", ["TracePlugin", "both", "SchedulerPlugin"])
def test_a_whole_file_that_is_missing(client: Client, tmp_path: Path, plugin: str) -> None:
    with dasfprof.profile(client, name="mine", directory=tmp_path):
        run_tasks(client, f"one-{plugin}", 80)
    assert " lost nothing " in info(tmp_path)
    victim = trace_files(tmp_path, plugin if plugin != "both" else "TracePlugin")[0].path
    label = TraceFile(victim).read_header().get("worker", {}).get("label")
    runs = sum(batch.rows for batch in TraceFile(victim).batches() if batch.name == "Compute")
    victim.unlink()
    if plugin == "both":
        Path(str(victim).replace("TracePlugin", "ResourceMonitor")).unlink()
    told = info(tmp_path)
    assert "lost nothing" not in told
    assert lost_runs(told) == runs
    if plugin == "both":
        assert "1 worker without a file: tcp://" in told
    elif plugin == "SchedulerPlugin":
        assert "lost no scheduler's file: queueing" in told
    else:
        analyser = TraceAnalyser(tmp_path, progress=False)
        (note,) = notes(analyser, "file-missing")
        assert note in told
        assert f"{label}: its process also has a file of {plugin}," in note
        assert f"also has a file of {plugin}" in finding(analyser, tmp_path)


def work(number: int) -> int:
    time.sleep(0.015)
    return number


def assert_said_of_cuts(traces: Path, *shares: float) -> None:
    """Truncate the scheduler's file; the workers' complete files have the ends of all 400 tasks."""
    assert " lost nothing " in info(traces)
    (file,) = trace_files(traces, "SchedulerPlugin")
    whole = file.path.read_bytes()
    counts = set()
    for share in shares:
        file.path.write_bytes(whole[: int(len(whole) * share)])
        states = facts(traces, "SchedulerPlugin", "Scheduler State")
        counts |= {state["unfinished"] for state in states[-1:]}
        analyser = TraceAnalyser(traces, progress=False)
        assert len(analyser.trace.tasks) == 400
        findings = unrefuted(analyser, traces)
        said = " ".join([*findings["Finding"], *findings["Evidence"]])
        assert "unfinished" not in said, share
        assert "goes on" not in said, share
        assert file.path.name in said
        told = info(traces)
        assert "still being written" not in told
        assert "lost nothing" not in told
    assert max(counts) > 0, "no cut of the file says that tasks were unfinished"


def test_a_file_of_a_scheduler_that_is_alive_is_cut(client: Client, tmp_path: Path) -> None:
    """No task is reported as unfinished, and the run is not reported as in progress."""
    with dasfprof.profile(client, name="mine", directory=tmp_path):
        assert len(client.gather(client.map(work, range(400), pure=False))) == 400
    assert_said_of_cuts(tmp_path, 0.5)


PROGRAM = """
import sys, dasfprof
from distributed import Client
from test_lost_files import work

with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
    with dasfprof.profile(client, name="mine", directory=sys.argv[1]):
        assert len(client.gather(client.map(work, range(400)))) == 400
"""


@pytest.mark.whole_program
def test_a_scheduler_s_file_that_is_cut(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": PATHS}, timeout=240, check=True)
    assert_said_of_cuts(tmp_path, 0.4, 0.8)
