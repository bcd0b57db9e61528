"""Clusters for tests, and waiting for conditions on them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from distributed import Client, Event, LocalCluster


@contextmanager
def new_client(**options: Any) -> Iterator[Client]:
    """Start a `LocalCluster` with these options and without a dashboard, and return its client."""
    with (
        LocalCluster(**{"dashboard_address": None, **options}) as cluster,
        Client(cluster) as client,
    ):
        yield client


def client_of(
    n_workers: int,
    threads_per_worker: int | None = None,
    *,
    scope: Literal["function", "module"] = "module",
    **options: Any,
) -> Any:
    """Return a fixture that provides a client of a `LocalCluster` to each test or module."""

    @pytest.fixture(scope=scope)
    def client() -> Iterator[Client]:
        sizes = {"n_workers": n_workers, "threads_per_worker": threads_per_worker}
        with new_client(**sizes, **options) as client:
            yield client

    return client


def wait_until(condition: Callable[[], Any], seconds: float = 120.0, every: float = 0.02) -> Any:
    """Poll until the condition is true, and return its value.

    A slow condition takes at most a third of the time, because the processes it waits for need the
    core.
    """
    deadline = time.monotonic() + seconds
    begin = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        assert now < deadline, "it did not come true in time"
        time.sleep(max(every, 2 * (now - begin)))
        begin = time.monotonic()
    return value


def wait_for(event: str) -> str:
    """Wait for an event of Dask, as a task."""
    assert Event(event).wait(240)
    return event


def is_written(file: Path) -> bool:
    """Return whether a scheduler file is complete. Dask creates it empty and fills it later."""
    try:
        return bool(json.loads(file.read_text())["address"])
    except (OSError, ValueError):
        return False
