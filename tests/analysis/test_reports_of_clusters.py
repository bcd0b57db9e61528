"""The reports of real runs: outcomes, moves and plants against what the cluster itself says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster, wait
from refuters import refute

import dasfprof
from dasfprof import TraceAnalyser

pytestmark = [pytest.mark.dask_internals, pytest.mark.whole_program]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nap(seconds: float, *others: object) -> bytes:
    time.sleep(seconds)
    return b"x" * 1_000_000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_outcome_of_a_task_that_kills_its_worker(client: Client, tmp_path: Path) -> None:
    client.wait_for_workers(2)
    with dasfprof.profile(client, directory=tmp_path) as run:
        killed = client.submit(die, key="die-1")
        wait(killed)
        assert killed.status == "error"
    analyser = TraceAnalyser(run.files())
    (death,) = analyser.processed_tasks().to_dict("records")

    assert death["Task"] == "die-1"
    assert death["Error Category"] == "worker lost"
    assert death["Status"] == "erred"
    workers = analyser.trace.workers
    assert workers["exit_code"].dropna().tolist() == [-signal.SIGKILL]
    table = analyser.diagnose()
    (finding,) = table[table["Rule"] == "killed-worker-errors"].to_dict("records")
    assert "killed by SIGKILL" in finding["Evidence"]


def hog() -> None:
    held = bytearray(700_000_000)
    for place in range(0, len(held), 4096):
        held[place] = 1
    time.sleep(300)


def test_what_ran_beside_a_hog_is_not_blamed(tmp_path: Path) -> None:
    """The nanny kills the worker at 95 % of its limit, with whatever it has by then."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=1, threads_per_worker=2, memory_limit="500MB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path) as run,
    ):
        wait(client.map(nap, [0.01] * 20, pure=False))
        killed = client.submit(hog)
        beside = client.submit(nap, 300)
        wait([killed, beside])
        assert {killed.status, beside.status} == {"error"}
    findings = run.analyser(progress=False).diagnose()
    assert not refute(run.files(), run.analyser(progress=False).findings())

    (finding,) = findings[findings["Rule"] == "killed-worker-errors"].to_dict("records")
    assert finding["Finding"].startswith("2 tasks were abandoned")
    assert "killed because memory ran out" in finding["Finding"]
    assert (finding["Function"], finding["Severity"]) == ("hog", "high")
    assert "fewer tasks like hog" in finding["Suggestion"]
    for suggestion in findings["Suggestion"]:
        assert "like nap" not in suggestion
        assert "threads_per_worker=" not in suggestion
