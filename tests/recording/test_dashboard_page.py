"""The run's page on the scheduler's HTTP server: there while recorded, free while nobody looks."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from clusters import wait_until
from distributed import Client, LocalCluster

import dasfprof

HOSTILE = "x<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as started:
        yield started


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected:
        yield connected


def get(url: str) -> Any:
    return urllib.request.urlopen(url, timeout=120)


def companions() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    found = []
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "dasfprof.handles.live" in child.cmdline():
                found.append(child)
    return found


def test_the_page_and_its_state(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        assert not companions(), "a process runs though nobody looks"
        page = get(run.page)
        text = page.read().decode()
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "http" not in re.sub(r"<!DOCTYPE.*?>", "", text), "it needs nothing from elsewhere"
        client.submit(abs, -1, key=f"{HOSTILE}-1").result()

        def state() -> Any:
            run.flush()
            told = json.loads(get(f"{run.page}/state.json").read())
            return told if told.get("state") and told["state"]["done"] == 1 else None

        told = wait_until(state)
        assert told["state"]["functions"][0]["function"] == HOSTILE
        assert "<img" not in told["html"]
        assert "&lt;img" in told["html"]
        assert len(companions()) == 1
        address = run.page
    wait_until(lambda: not companions())  # the process ends with the run
    assert run.page == "no page: the run has ended"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(address)


def test_counts_alone(client: Client, tmp_path: Path) -> None:
    """No key, error or source of the program is on the pages."""
    secrets = ("hidden", "test_dashboard_page")
    with (
        dask.config.set({"dasfprof.dashboard": "counts"}),
        dasfprof.profile(client, name="run", directory=tmp_path) as run,
    ):
        client.submit(int, "hidden-value", key="hidden-1").exception()

        def state() -> Any:
            run.flush()
            text = get(f"{run.page}/state.json").read().decode()
            return text if json.loads(text).get("state", {}).get("failed") == 1 else None

        text = wait_until(state)
        assert not [secret for secret in secrets if secret in text]
        assert json.loads(text)["state"]["functions"] == []


def test_no_pages(client: Client, tmp_path: Path) -> None:
    with (
        dask.config.set({"dasfprof.dashboard": False}),
        dasfprof.profile(client, directory=tmp_path) as run,
        pytest.raises(urllib.error.HTTPError, match="404"),
    ):
        get(run.page)


def test_two_runs_one_after_the_other(client: Client, tmp_path: Path) -> None:
    rules = client.run_on_scheduler(_rules)
    for name in ("first", "second"):
        with dasfprof.profile(client, name=name, directory=tmp_path) as run:
            client.submit(abs, -2, pure=False).result()

            def named(page: str = run.page, name: str = run.name) -> bool:
                told = json.loads(get(f"{page}/state.json").read())
                return bool(told.get("state", {}).get("run") == name)

            wait_until(named)
    assert client.run_on_scheduler(_rules) == rules


def _rules(dask_scheduler: Any) -> int:
    return len(dask_scheduler.http_application.default_router.rules)


def test_a_scheduler_that_looks_elsewhere_goes_on(client: Client, tmp_path: Path) -> None:
    """A file that cannot be read is told on the page, and breaks nothing."""
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        wait_until(run.files)
        for path in run.files():
            path.unlink()
        told = json.loads(get(f"{run.page}/state.json").read())
        assert told.keys() & {"error", "state"}
        assert client.submit(abs, -3, pure=False).result() == 3
