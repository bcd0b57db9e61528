"""Restarts, retirements, cancellations and adaptive scaling are recorded, with their origin."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import client_of, wait_until
from distributed import Client
from recorded_facts import facts
from unrefuted import unrefuted

import dasfprof
from dasfprof import TraceAnalyser

client = client_of(2, 1, scope="function")


def changes(source: Any, action: str) -> list[dict[str, Any]]:
    rows = facts(source, "SchedulerPlugin", "Cluster Change")
    return [row for row in rows if row["action"] == action]


def wait_for(number: int) -> int:
    threading.Event().wait(600)
    return number


@pytest.mark.parametrize("ends", [False, True], ids=["continues", "ends"])
def test_a_restart_in_a_run_that(ends: bool, client: Client, tmp_path: Path) -> None:
    """The unfinished tasks have a cause and none failed, even if the restart is the last event."""
    addresses = set(client.nthreads())
    with dasfprof.profile(client, directory=tmp_path):
        assert client.submit(abs, -1).result() == 1
        futures = client.map(wait_for, range(32), key="wait")
        wait_until(lambda: sum(map(len, client.processing().values())) >= 2)
        client.restart(timeout=120)
        assert ends or client.submit(abs, -2).result() == 2
    del futures
    (restart,) = changes(tmp_path, "restart")
    assert (restart["who"], set(restart["workers"])) == (client.id, addresses)
    analyser = TraceAnalyser(tmp_path, progress=False)
    findings = unrefuted(analyser, tmp_path).set_index("Rule")
    assert {"lost-workers", "unfinished-run"}.isdisjoint(findings.index)
    finding = findings.loc["cancelled-tasks"]
    assert "restarted the workers, which cancelled 32 unfinished tasks." in finding["Finding"]
    assert "for 0 s" not in finding["Evidence"]
    functions = analyser.processed_tasks("function").set_index("Function")
    assert functions["Failed"].sum() == 0
    assert functions["Succeeded"].sum() == functions.loc["abs", "Succeeded"] == 2 - ends
    assert analyser.cluster_changes()["Action"].tolist() == ["restart"]


def test_who_cancelled_and_what_adaptive_wanted(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path):
        futures = client.map(wait_for, range(3), key="wait")
        wait_until(client.processing)
        client.cancel(futures)
        wait_until(lambda: changes(tmp_path, "cancel"))
        client.cluster.adapt(minimum=1, maximum=1, interval="100ms", wait_count=1)
        wait_until(lambda: len(client.nthreads()) == 1)
        wait_until(lambda: changes(tmp_path, "retire"))
    assert sum(row["number"] for row in changes(tmp_path, "cancel")) == 3
    assert {row["who"] for row in changes(tmp_path, "cancel")} == {client.id}
    assert {row["who"] for row in changes(tmp_path, "adapt")} == {"adaptive"}
    (retired,) = changes(tmp_path, "retire")
    assert (retired["who"], len(retired["workers"])) == ("adaptive", 1)


def test_a_worker_that_a_client_retires_and_one_that_pauses(client: Client, tmp_path: Path) -> None:
    def become(status: str, dask_worker: Any) -> None:
        dask_worker.status = getattr(type(dask_worker.status), status)

    first, second = client.nthreads()
    with dasfprof.profile(client, directory=tmp_path):
        client.run(become, "paused", workers=[first])
        wait_until(lambda: changes(tmp_path, "pause"))
        client.run(become, "running", workers=[first])
        wait_until(lambda: changes(tmp_path, "resume"))
        client.retire_workers([second])
        wait_until(lambda: changes(tmp_path, "retire"))
    (paused,), (resumed,) = changes(tmp_path, "pause"), changes(tmp_path, "resume")
    assert paused["workers"] == resumed["workers"] == [first]
    assert paused["timestamp"] <= resumed["timestamp"] <= time.time()
    (retired,) = changes(tmp_path, "retire")
    assert (retired["workers"], retired["who"]) == ([second], None)
