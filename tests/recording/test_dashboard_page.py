"""The run's page on the scheduler's HTTP server: it exists while recording, and costs nothing if
nobody opens it.
"""

import contextlib
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from clusters import client_of, wait_until
from distributed import Client

import dasfprof

HOSTILE = "x<img src=x onerror=alert(1)>"


client = client_of(1, 1, dashboard_address=":0")


def get(url: str) -> Any:
    return urllib.request.urlopen(url, timeout=120)


def companions() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended
            found += [child] * ("dasfprof.handles.live" in child.cmdline())
    return found


def shown(run: Any, /, **expected: Any) -> Any:
    """Return the page's document and text once its state contains these items."""

    def read() -> Any:
        run.flush()
        text = get(f"{run.page}/state.json").read().decode()
        state = json.loads(text).get("state") or {}
        return (json.loads(text), text) if expected.items() <= state.items() else None

    return wait_until(read)


def test_the_page_and_its_state(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        assert not companions(), "a process runs though nobody looks"
        page = get(run.page)
        text = page.read().decode()
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "http" not in re.sub(r"<!DOCTYPE.*?>", "", text), "it needs nothing from elsewhere"
        client.submit(abs, -1, key=f"{HOSTILE}-1").result()
        document, _ = shown(run, done=1)
        assert document["state"]["functions"][0]["function"] == HOSTILE
        assert "<img" not in document["html"]
        assert "&lt;img" in document["html"]
        assert len(companions()) == 1
        address = run.page
    wait_until(lambda: not companions())  # the process ends with the run
    assert run.page == "no page: the run has ended"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(address)


def test_counts_alone(client: Client, tmp_path: Path) -> None:
    """The pages do not contain keys, errors or source of the program."""
    secrets = ("hidden", "test_dashboard_page")
    with (
        dask.config.set({"dasfprof.dashboard": "counts"}),
        dasfprof.profile(client, name="run", directory=tmp_path) as run,
    ):
        client.submit(int, "hidden-value", key="hidden-1").exception()
        document, text = shown(run, failed=1)
        assert not [secret for secret in secrets if secret in text]
        assert document["state"]["functions"] == []


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
            shown(run, run=run.name)
    assert client.run_on_scheduler(_rules) == rules


def _rules(dask_scheduler: Any) -> int:
    return len(dask_scheduler.http_application.default_router.rules)


def test_a_scheduler_that_looks_elsewhere_goes_on(client: Client, tmp_path: Path) -> None:
    """The page reports a file that cannot be read, and everything else works."""
    with dasfprof.profile(client, name="run", directory=tmp_path) as run:
        wait_until(run.files)
        for path in run.files():
            path.unlink()
        told = json.loads(get(f"{run.page}/state.json").read())
        assert told.keys() & {"error", "state"}
        assert client.submit(abs, -3, pure=False).result() == 3
