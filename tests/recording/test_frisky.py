"""Frisky, which takes no plugins: it is said what is not recorded, and its own record is read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import wait_until
from distributed import Client, LocalCluster

import dasfprof

frisky = pytest.importorskip("frisky")


def told(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(record.getMessage() for record in caplog.records if record.levelno >= 30)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "processes": True}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


def test_a_cluster_that_frisky_takes_over_later_is_told_of_at_the_end(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        assert "Frisky" not in told(caplog)
        other = frisky.hijack(client)
        assert other.submit(pow, 2, 3).result() == 8
    assert "tasks that go to its scheduler are not recorded" in told(caplog)
    assert len(run.analyser().trace.tasks) == 0


def test_a_cluster_that_frisky_has_taken_over_is_told_of_at_once(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = frisky.hijack(client)
    with caplog.at_level(logging.WARNING), dasfprof.profile(client, directory=tmp_path) as run:
        assert "Frisky has taken over this cluster" in told(caplog)
        assert other.submit(pow, 2, 3).result() == 8
        assert client.submit(pow, 2, 4).result() == 16  # to Dask's own scheduler
    trace = run.analyser().trace
    assert len(trace.tasks) == 1
    assert len(trace.samples) > 0


def doubled(number: int) -> int:
    return 2 * number


def test_a_client_of_its_own_has_its_own_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        frisky.LocalCluster(n_workers=1) as cluster,
        cluster.get_client() as client,
        dasfprof.profile(client, directory=tmp_path, name="frisky") as run,
    ):
        assert "Frisky's scheduler takes no plugins" in told(caplog)
        futures = [client.submit(doubled, number) for number in (4, 5)]
        assert [future.result() for future in futures] == [8, 10]
        key = str(futures[0].key)

        def spans() -> Any:
            link = client.dashboard_link
            found = frisky.query_spans(name="worker.exec.call", dashboard_url=link)
            return found if {key} <= {one for span in found for one in span["keys"]} else None

        (expected,) = [span for span in wait_until(spans) if span["keys"] == [key]]
    trace = run.analyser().trace
    assert len(trace.tasks) == 0
    calls = trace.events[trace.events["name"] == "worker.exec.call"]
    (event,) = [row for row in calls.to_dict("records") if row["args"]["keys"] == [key]]
    assert event["time"] == pytest.approx(expected["start_ns"] / 1e9, abs=1e-5)
    assert event["duration"] == pytest.approx(expected["duration_ns"] / 1e9, abs=1e-5)


def test_what_cannot_be_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with frisky.LocalCluster(n_workers=1) as cluster, cluster.get_client() as client:
        run = dasfprof.register_default_profiler(client, directory=tmp_path)
    run.stop()
    assert "stop the run before its client closes" in told(caplog)
