"""A run ends by itself if nobody can end it: on a worker that was silent, or without its client."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import dask
import independent_record as record
import pytest
from dask_processes import Processes
from distributed import Client
from recorded_facts import computed, without_texts
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.database.reader import TraceFile

pytestmark = pytest.mark.whole_program

#: Seconds for which a client may be gone, long enough for a busy machine.
LIMIT = 8


def recorders(client: Client) -> dict[str, list[str]]:
    """Return the recording workers, with the names of their plugins and threads."""

    def names(dask_worker: Any) -> list[str]:
        all_names = [*dask_worker.plugins, *(thread.name for thread in threading.enumerate())]
        return [name for name in all_names if name.startswith("dasfprof-")]

    return {worker: names for worker, names in client.run(names).items() if names}


def compute(client: Client, name: str, count: int = 6) -> set[str]:
    keys = [f"{name}-{number}" for number in range(count)]
    client.gather(client.map(abs, range(count), key=keys))
    return set(keys)


def computed_keys(source: Any) -> set[Any]:
    return {row["key"] for row in computed(source)}


def plugins_on_scheduler(client: Client) -> list[str]:
    names = client.run_on_scheduler(
        lambda dask_scheduler: [*dask_scheduler.plugins, *dask_scheduler.worker_plugins]
    )
    return [name for name in names if name.startswith("dasfprof-")]


def test_a_worker_that_was_silent_as_its_run_was_stopped(
    processes: Processes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, (first, _) = processes.cluster(False, False)
    traces = tmp_path / "traces"
    with processes.client() as client:
        client.wait_for_workers(2)
        (victim,) = (worker for worker, pid in client.run(os.getpid).items() if pid == first.pid)
        with dasfprof.profile(client, directory=traces) as run:
            keys = compute(client, "before", 8)
            run._link.limit = 1.0
            first.send_signal(signal.SIGSTOP)
        assert set(run.unanswered) == {victim}
        assert "is not stopped" in caplog.text
        assert plugins_on_scheduler(client) == []
        first.send_signal(signal.SIGCONT)
        other = dasfprof.register_default_profiler(client, directory=tmp_path / "other")
        compute(client, "after", 9)
        other.stop()
        assert record.wait_until(lambda: not recorders(client))
        run._link.limit = 60.0
        run.stop()
        assert "stopped" in repr(run)
    assert keys <= computed_keys(run)
    assert all(TraceFile(path).is_closed() for path in run.files())


#: Registers, computes and waits for a line of input, with a limit for the absence of its client.
SCRIPT = """
    import sys
    import dask, dasfprof
    from distributed import Client

    file, directory, limit, name, *then = sys.argv[1:]
    client = Client(scheduler_file=file, timeout=120)
    client.wait_for_workers(2)
    dask.config.set({"dasfprof.orphan-timeout": limit})
    run = dasfprof.register_default_profiler(client, name=name, directory=directory)
    client.gather(client.map(abs, range(5), key=[f"{name}-{i}" for i in range(5)]))
    if then:
        client.close()
    print("done", flush=True)
    sys.stdin.readline()
    run.stop()
    print(repr(run), flush=True)
    sys.stdin.readline()
"""


def script(processes: Processes, traces: Path, name: str, *then: str) -> Any:
    """Run a script until it has computed its tasks and, optionally, closed its client."""
    arguments = [str(processes.scheduler_file), str(traces), f"{LIMIT}s", name, *then]
    process = processes.start("-c", textwrap.dedent(SCRIPT), *arguments, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"done\n"
    return process


def runs(client: Client) -> set[str]:
    def names(dask_scheduler: Any) -> list[str]:
        plugins = dask_scheduler.plugins.items()
        return [own.settings.name for name, own in plugins if name.startswith("dasfprof-")]

    return {name.rpartition("-")[0] for name in client.run_on_scheduler(names)}


def test_a_run_ends_after_its_client_was_killed(processes: Processes, tmp_path: Path) -> None:
    processes.cluster(False, False)
    traces = tmp_path / "traces"
    dead = script(processes, traces, "dead")
    with processes.client() as client:
        assert runs(client) == {"dead"}
        dead.kill()
        assert record.wait_until(lambda: not runs(client), seconds=120)
        assert record.wait_until(lambda: not recorders(client))
        assert plugins_on_scheduler(client) == []
        compute(client, "late")
    assert computed_keys(traces) == {f"dead-{number}" for number in range(5)}
    files = [path for path in traces.iterdir() if "-StepRecorder-" not in path.name]
    assert len(files) == 5
    assert all(TraceFile(path).is_closed() for path in files)
    command = [sys.executable, "-m", "dasfprof", "info", str(traces)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert " ".join(said.stdout.split()).count("closed because its client was gone") == 5
    analyser = TraceAnalyser(traces, progress=False)
    findings = analyser.diagnose().set_index("Rule")
    assert "recording ended by itself" in findings["Finding"]["incomplete-trace"].lower()
    (note,) = (note for note in analyser.trace.notes if note.kind == "client-gone")
    assert "had been gone for" in note.text
    incomplete = [finding for finding in analyser.findings() if finding.rule == "incomplete-trace"]
    assert refute(traces, incomplete) == []


def test_clients_that_are_there_or_come_back_keep_their_runs(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile, the run of a killed process ends, and that of a preload continues."""
    options = {
        "ORPHAN_TIMEOUT": "1s",
        "NAME": "preloaded",
        "DIRECTORY": str(tmp_path / "preloaded"),
    }
    for name, value in options.items():
        monkeypatch.setenv(f"DASK_DASFPROF__{name}", value)
    processes.scheduler("--preload", "dasfprof.preload")
    for _ in range(2):
        processes.worker()
    closed = script(processes, tmp_path / "closed", "closed", "closes")
    with (
        processes.client() as client,
        processes.client() as cut,
        dask.config.set({"dasfprof.orphan-timeout": f"{LIMIT}s"}),
    ):
        run = dasfprof.register_default_profiler(cut, name="cut", directory=tmp_path / "cut")
        dead = script(processes, tmp_path / "dead", "dead")
        assert runs(client) == {"closed", "cut", "dead", "preloaded"}

        def cut_off(name: str, dask_scheduler: Any) -> None:
            dask_scheduler.client_comms[name].comm.abort()

        client.run_on_scheduler(cut_off, cut.id)
        dead.kill()
        assert record.wait_until(lambda: "dead" not in runs(client), seconds=120)
        assert runs(client) == {"closed", "cut", "preloaded"}
        keys = compute(client, "after")
        run.stop()
        closed.stdin.write(b"\n")
        closed.stdin.flush()
        assert b"stopped" in closed.stdout.readline()
        assert runs(client) == {"preloaded"}
    assert keys <= computed_keys(tmp_path / "cut")
    # A client of another process recorded this run.
    assert len(without_texts(computed_keys(tmp_path / "closed"))) >= len(keys)
    for name in ("closed", "cut"):
        notes = TraceAnalyser(tmp_path / name, progress=False).trace.notes
        assert "client-gone" not in {note.kind for note in notes}
