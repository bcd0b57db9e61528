"""Runs of several owners stand beside each other: a preload's, and those of other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from clusters import new_client
from distributed import Client
from recorded_facts import assert_whole, computed

import dasfprof
from dasfprof import TraceAnalyser

#: Another process: records from its begin until a line comes in, and runs its own tasks then.
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
    config = {
        "distributed.scheduler.preload": ["dasfprof.preload"],
        "dasfprof.directory": str(directory),
        "dasfprof.name": "preloaded",
        **options,
    }
    with (
        dask.config.set(config),
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
    def count(dask_scheduler: Any) -> int:
        return sum(name.startswith("dasfprof-") for name in dask_scheduler.plugins)

    return int(client.run_on_scheduler(count))


def test_a_clients_run_stands_beside_that_of_a_preload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Given a preload's run, when a client registers and stops, both files hold what was theirs."""
    with preloaded(tmp_path / "preload") as client:
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
    for directory in ("mine", "preload"):
        source = dasfprof.open_run(tmp_path / directory)
        attempts = TraceAnalyser(source, progress=False).processed_tasks()
        assert len(attempts) == len(recorded(tmp_path / directory))
    assert_whole(run)


def test_two_processes_record_one_cluster(tmp_path: Path) -> None:
    """The run that began first ends first: its hooks lie beneath the other's."""
    with (
        new_client(n_workers=2, threads_per_worker=1) as client,
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                OTHER,
                client.cluster.scheduler_address,
                str(tmp_path / "theirs"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
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
    # The cluster is not that process's, so that it records this process's tasks without keys.
    keys = recorded(tmp_path / "theirs")
    assert {key for key in keys if not key.startswith("other-clients-")} == theirs
    assert len(keys) == len(both | theirs)
    assert recorded(tmp_path / "mine") == both | theirs | alone
    assert len(computed(run)) == len(both | theirs | alone)
    assert_whole(run)


def test_one_of_two_profilers_of_calls_counts_and_the_other_says_so(tmp_path: Path) -> None:
    options = {"dasfprof.profiler": "cprofile"}
    with (
        preloaded(tmp_path / "preload", **options) as client,
        dasfprof.profile(client, name="mine", directory=tmp_path / "mine"),
    ):
        run_tasks(client, "profiled", 8)
    counted = {}
    for directory in ("mine", "preload"):
        source = dasfprof.open_run(tmp_path / directory)
        profiles = TraceAnalyser(source, progress=False).trace.call_profiles
        profiles = profiles[profiles["name"] == "profiled"]
        counted[directory] = int(profiles["runs"].sum()), int(profiles["left_out"].sum())
    assert sorted(counted.values()) == [(0, 8), (8, 0)]
