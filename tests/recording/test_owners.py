"""Runs of several owners are recorded together: a preload's, other processes', and DASF's."""

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import msgpack
import pytest
from clusters import new_client
from distributed import Client
from distributed.diagnostics.plugin import WorkerPlugin
from recorded_facts import assert_whole, computed

import dasfprof
from dasfprof import TraceAnalyser

#: Another process, which records until it reads a line, and runs its tasks then.
OTHER = """
import sys
import dasfprof
from distributed import Client

with Client(sys.argv[1]) as client:
    with dasfprof.profile(client, name="theirs", directory=sys.argv[2]):
        print("recording", flush=True)
        sys.stdin.readline()
        client.gather(client.map(abs, range(7), key=[f"theirs-{i}" for i in range(7)]))
    print("ended", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def preloaded(directory: Path, **options: Any) -> Iterator[Client]:
    """Start a cluster whose scheduler records it into a directory."""
    config = {"dasfprof.directory": str(directory), "dasfprof.name": "preloaded", **options}
    with (
        dask.config.set({"distributed.scheduler.preload": ["dasfprof.preload"], **config}),
        new_client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client,
    ):
        yield client


def run_tasks(client: Client, name: str, count: int) -> set[str]:
    keys = [f"{name}-{number}" for number in range(count)]
    assert client.gather(client.map(abs, range(count), key=keys)) == list(range(count))
    return set(keys)


def recorded(source: Path) -> set[Any]:
    run = dasfprof.open_run(source)
    return {event.args["key"] for event in run if event.name == "Compute"}


def runs_on(client: Client) -> int:
    names = client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.plugins])
    return sum(name.startswith("dasfprof-") for name in names)


def test_a_run_beside_that_of_a_preload(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with preloaded(tmp_path / "preload", **{"dasfprof.profiler": "cprofile"}) as client:
        before = run_tasks(client, "before", 5)
        with dasfprof.profile(client, name="mine", directory=tmp_path / "mine") as run:
            assert runs_on(client) == 2
            with dasfprof.step("load"):
                mine = run_tasks(client, "mine", 11)
        assert runs_on(client) == 1
        after = run_tasks(client, "after", 6)
    assert "stopped" not in caplog.text
    assert recorded(tmp_path / "mine") == mine
    assert recorded(tmp_path / "preload") == before | mine | after
    counted = []
    for directory in ("mine", "preload"):
        analyser = TraceAnalyser(dasfprof.open_run(tmp_path / directory), progress=False)
        assert len(analyser.processed_tasks()) == len(recorded(tmp_path / directory))
        profiles = analyser.trace.call_profiles.query("name == 'mine'")
        counted.append((profiles["runs"].sum(), profiles["left_out"].sum()))
    # One of two profilers of calls counts, and the other reports what it left out.
    assert sorted(counted) == [(0, 11), (11, 0)]
    assert_whole(run)


def test_two_processes_record_one_cluster(tmp_path: Path) -> None:
    """The run that started first ends first, although the other run's hooks wrap its hooks."""
    with (
        new_client(n_workers=2, threads_per_worker=1) as client,
        subprocess.Popen(
            [sys.executable, "-c", OTHER, client.cluster.scheduler_address, tmp_path / "theirs"],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
        ) as other,
    ):
        assert other.stdout.readline() == "recording\n"
        with dasfprof.profile(client, name="mine", directory=tmp_path / "mine") as run:
            both = run_tasks(client, "both", 5)
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "ended\n"
            assert runs_on(client) == 1
            alone = run_tasks(client, "alone", 4)
        hooks = client.run(lambda dask_worker: "_finalize_metrics" in vars(dask_worker))
        assert not any(hooks.values()), "a hook was left behind"
        other.stdin.write("\n")
        other.stdin.flush()
    theirs = {f"theirs-{number}" for number in range(7)}
    # The other process does not own the cluster, so it records this process's tasks without keys.
    keys = recorded(tmp_path / "theirs")
    assert {key for key in keys if not key.startswith("other-clients-")} == theirs
    assert len(keys) == len(both | theirs)
    assert recorded(tmp_path / "mine") == both | theirs | alone
    assert len(computed(run)) == len(both | theirs | alone)
    assert_whole(run)


class AsDasf(WorkerPlugin):
    """Plugin that writes a file in DASF's format: for each task, 8 bytes of length and a map."""

    name = "r-TracePlugin"

    def __init__(self, path: Path) -> None:
        self.path = path

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "memory":
            write_dasf(self.path, key)


def write_dasf(path: Path, key: str) -> None:
    args = {"key": key, "state": "memory", "size": 8, "tasks": 1}
    fields = {"name": "Managed Memory", "timestamp": time.monotonic(), "phase": "I", "args": args}
    packed = msgpack.packb({**fields, "scope": "g", "process_id": "h", "thread_id": "worker-h-0"})
    with path.open("ab") as file:
        file.write(struct.pack(">Q", len(packed)) + packed)


def test_a_run_is_read_beside_files_of_dasf(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    write_dasf(there / "traces-1a2b3c4d.msgpack", "before-1")
    (there / "empty-TracePlugin-h.msgpack").touch()  # DASF creates the file before it writes
    with new_client(n_workers=1, threads_per_worker=1, processes=False) as client:
        client.register_plugin(AsDasf(there / "r-TracePlugin-h.msgpack"))
        with dasfprof.profile(client, name="r", add_time_suffix=False, directory=there) as run:
            assert client.submit(abs, -1, key="abs-1").result() == 1
            assert "4 files" in repr(run)
            collected = run.collect(here)
    assert (there / "r-TracePlugin-h.msgpack").stat().st_size > 0
    for files in (run.files(), collected):
        plugins = sorted(path.name.split("-")[1] for path in files)
        assert plugins == ["ResourceMonitor", "SchedulerPlugin", "StepRecorder", "TracePlugin"]
    assert "stopped, 4 files" in repr(run)
    trace = run.analyser().trace
    assert trace.keys.texts(trace.tasks["key_id"]).tolist() == ["abs-1"]
