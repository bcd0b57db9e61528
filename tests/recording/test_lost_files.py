"""Files that others remove, move or cut: what is gone of a run is said, and how much it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import client_of
from distributed import Client
from recorded_facts import trace_files
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli
from dasfprof.database.reader import TraceFile

client = client_of(2, 1)


def run_tasks(client: Client, name: str, count: int) -> None:
    keys = [(name, i) for i in range(count)]
    futures = client.map(abs, range(count), key=keys)
    assert sum(client.gather(futures)) == count * (count - 1) // 2


def events_in(path: Path) -> int:
    return sum(batch.rows for batch in TraceFile(path).batches())


def info(directory: Path) -> str:
    """What the command says, with its lines put together."""
    result = CliRunner().invoke(cli, ["info", str(directory)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def notes(directory: Path, kind: str) -> list[str]:
    trace = TraceAnalyser(directory, progress=False).trace
    return [note.text for note in trace.notes if note.kind == kind]


def finding(directory: Path) -> str:
    """What the diagnosis says of the trace itself, and no refuter contradicts."""
    analyser = TraceAnalyser(directory, progress=False)
    findings = analyser.diagnose()
    assert not refute(directory, analyser.findings())
    own = findings[findings["Rule"] == "incomplete-trace"]
    return " ".join([*own["Finding"], *own["Evidence"], *own["Suggestion"]])


def test_a_directory_that_is_moved_while_it_is_recorded(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    traces, moved = tmp_path / "traces", tmp_path / "moved"
    with dasfprof.profile(client, name="mine", directory=traces) as run:
        run_tasks(client, "early", 200)
        run.flush()
        traces.rename(moved)
        run_tasks(client, "late", 400)
    files = sorted(moved.glob("*.msgpack"))
    gone = sum(map(events_in, files))
    assert gone > 400  # of a task its worker and the scheduler record at least one
    words = f"{gone:,} events"
    told = info(traces)
    assert f" lost {words} that had been written are missing" in told
    assert "It was removed, moved or unmounted while the run was recorded." in told
    assert notes(traces, "lost-events")[0].startswith(f"{words} that had been written")
    said = finding(traces)
    assert words in said
    assert "moved can be put back" in said
    assert (
        "was removed, moved, truncated or unmounted" in caplog.text
    )  # the scheduler is in this process
    assert not notes(traces, "not-closed")
    # Each file says what was before.
    for path in files:
        (later,) = traces.glob(f"{path.stem}.segment0002.msgpack")
        assert TraceFile(later).read_header()["before"]["events"] == events_in(path)

    # Nothing is lost where they are put together again.
    for path in files:
        path.rename(traces / path.name)
    assert " lost nothing " in info(traces)
    assert "continued in the next segment" in info(traces)
    trace = TraceAnalyser(traces, progress=False).trace
    assert len(trace.tasks) == 600
    kinds = {note.kind for note in trace.notes}
    assert kinds.isdisjoint({"lost-events", "segment-missing", "not-closed", "file-missing"})


@pytest.mark.parametrize("how", ["removed", "cut", "replaced"])
def test_a_file_that_is_lost_while_it_is_recorded(client: Client, tmp_path: Path, how: str) -> None:
    with dasfprof.profile(client, name="mine", directory=tmp_path) as run:
        run_tasks(client, f"early-{how}", 200)
        run.flush()
        victim = trace_files(tmp_path, "TracePlugin")[0].path
        before, size = events_in(victim), victim.stat().st_size
        if how == "removed":
            victim.unlink()
        elif how == "replaced":
            victim.unlink()
            victim.write_bytes(bytes(size + 1))
        else:
            os.truncate(victim, size // 2)
        run_tasks(client, f"late-{how}", 400)
    if how == "replaced":
        assert victim.read_bytes() == bytes(size + 1)
        victim.unlink()
    gone = before - (events_in(victim) if how == "cut" else 0)
    assert gone > 0
    words = f"{gone:,} events"
    told = info(tmp_path)
    assert f" lost {words} that had been written are missing" in told
    assert notes(tmp_path, "lost-events")[0].startswith(words)
    (note,) = notes(tmp_path, "segment-missing")
    assert words in note
    cause = "it was truncated before" if how == "cut" else "It was removed, moved or unmounted"
    assert cause in note
    assert words in finding(tmp_path)
    lost = re.findall(r"(\d+) task runs? \([\d.]+ s\) that the scheduler recorded", told)
    expected = 600 - len(TraceAnalyser(tmp_path, progress=False).trace.tasks)
    assert sum(map(int, lost)) == expected


@pytest.mark.parametrize("plugin", ["TracePlugin", "ResourceMonitor", "both", "SchedulerPlugin"])
def test_a_whole_file_that_is_missing(client: Client, tmp_path: Path, plugin: str) -> None:
    with dasfprof.profile(client, name="mine", directory=tmp_path):
        run_tasks(client, f"one-{plugin}", 400)
    assert " lost nothing " in info(tmp_path)
    victim = trace_files(tmp_path, plugin if plugin != "both" else "TracePlugin")[0].path
    label = TraceFile(victim).read_header().get("worker", {}).get("label")
    runs = sum(batch.rows for batch in TraceFile(victim).batches() if batch.name == "Compute")
    gone = [victim]
    if plugin == "both":
        gone.append(Path(str(victim).replace("TracePlugin", "ResourceMonitor")))
    for path in gone:
        path.unlink()
    told = info(tmp_path)
    assert "lost nothing" not in told
    if runs:
        lost = re.findall(r"(\d+) task runs \([\d.]+ s\) that the scheduler recorded", told)
        assert lost == [str(runs)]
    if plugin == "both":
        assert "1 worker without a file: tcp://" in told
    elif plugin == "SchedulerPlugin":
        assert "lost no scheduler's file: queueing" in told
    else:
        (note,) = notes(tmp_path, "file-missing")
        assert note in told
        assert f"{label}: its process also has a file of {plugin}," in note
        assert f"also has a file of {plugin}" in finding(tmp_path)


PROGRAM = """
import sys, time
import dasfprof
from distributed import Client, LocalCluster

def work(number):
    time.sleep(0.015)
    return number

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            with dasfprof.profile(client, name="mine", directory=sys.argv[1]):
                assert len(client.gather(client.map(work, range(400)))) == 400
            print("recorded", flush=True)
            sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("is_alive", "shares"),
    [
        (True, (0.5,)),
        pytest.param(False, (0.4, 0.8), marks=pytest.mark.whole_program),
    ],
)
def test_a_scheduler_s_file_that_is_cut(
    tmp_path: Path, is_alive: bool, shares: tuple[float, ...]
) -> None:
    """Workers' whole files hold the ends of all tasks: none was unfinished, and no run goes on."""
    script, traces = tmp_path / "program.py", tmp_path / "traces"
    script.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), str(traces)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == b"recorded\n"
        if not is_alive:
            program.communicate(b"\n", timeout=240)
        assert " lost nothing " in info(traces)
        (file,) = trace_files(traces, "SchedulerPlugin")
        whole = file.path.read_bytes()
        counts = set()
        for share in shares:
            file.path.write_bytes(whole[: int(len(whole) * share)])
            counts |= {unfinished_in(file.path)}
            analyser = TraceAnalyser(traces, progress=False)
            assert len(analyser.trace.tasks) == 400
            findings = analyser.diagnose()
            said = " ".join([*findings["Finding"], *findings["Evidence"]])
            assert "unfinished" not in said, share
            assert "goes on" not in said, share
            assert file.path.name in said
            told = info(traces)
            assert "still being written," not in told
            assert "lost nothing" not in told
            assert not refute(traces, analyser.findings())
        assert max(counts) > 0, "no cut of the file says that tasks were unfinished"
        if is_alive:
            program.communicate(b"\n", timeout=240)


def unfinished_in(path: Path) -> int:
    """The unfinished tasks by the last state of the scheduler in its file."""
    found = [0]
    for batch in TraceFile(path).batches():
        if batch.name == "Scheduler State":
            found += [int(event.args["unfinished"]) for _, event in batch.events()]
    return found[-1]
