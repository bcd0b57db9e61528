"""All keys that Dask accepts are stored and read back unchanged.

The accepted keys depend on the version of Dask and on the connection: the newest versions do not
accept bytes, none accepts NumPy integers from users (they occur inside graphs), and lone surrogates
work only without a network connection.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import independent_record as record
import numpy as np
import pytest
from clusters import new_client
from distributed import Client
from recorded_facts import assert_same_runs, assert_whole, computed, facts

import dasfprof

PLAIN = [
    *("<script>alert('x')</script>&amp;-1", "\x1b[31mred\x1b[0m\x07", "a\nb\r\n\ttab\x00nul"),
    *("=HYPERLINK(1)", "ключ-\U0001f600-7", "k" * 1_000_000, "x-" + "0" * 32, "x-" + "A" * 32),
    *("x-007", "x-" + "9" * 30, "trailing-", "-", " "),
    *(("x", ("y", ("z", 1.5), "<i>"), -3), ("e",), ("float", 1.0), ("int", 1)),
    *(("f", 0.1, float("inf")), ("wide", 2**40, -(2**40)), ("n" * 1000, *range(12))),
    *(5, -7, 2.5),
]
#: Keys that work within a process, where nothing is encoded, but end a network connection.
IN_PROCESS = ["a-\ud800", ("s", "\udcff"), ("big", 2**70)]


@pytest.fixture(scope="module", params=["processes", "threads"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    options = {"n_workers": 1, "threads_per_worker": 1}
    with new_client(**options, processes=request.param == "processes") as client:
        record.install(client)
        yield client


def test_hostile_keys_come_back_equal(client: Client, tmp_path: Path) -> None:
    record.clear(client)
    keys = PLAIN + IN_PROCESS * client.cluster.scheduler_address.startswith("inproc")
    with dasfprof.profile(client, directory=tmp_path) as run:
        for i, key in enumerate([*keys, b"bytes-1", ("t", b"raw")]):
            try:
                first = client.submit(abs, -i, key=key)
            except TypeError:  # versions of Dask after 2025.1 do not accept bytes
                assert i >= len(keys)
                continue
            second = client.submit(abs, first, key=("reads", i))
            assert client.gather([first, second]) == [i, i]
    assert_same_runs(run, record.task_runs(client))
    assert_whole(run)
    rows = computed(run)
    recorded = [row["key"] for row in rows if row["name"] != "reads"]
    assert [typed(key) for key in recorded[: len(keys)]] == [typed(key) for key in keys]
    read = [row["dependencies"] for row in rows if row["name"] == "reads"]
    assert read == [[key] for key in recorded]
    assert set(keys) <= {row["key"] for row in facts(run, "SchedulerPlugin", "Task Run")}
    # The public iterator gives the same keys.
    events = {e.args["key"] for e in run.database().get_traces() if e.name == "Compute"}
    assert events == {row["key"] for row in rows}


def typed(key: Any) -> Any:
    """Return a key as text with types, because 1 == 1.0."""
    return [typed(part) for part in key] if isinstance(key, tuple) else (type(key), key)


def test_keys_inside_of_a_graph(client: Client, tmp_path: Path) -> None:
    """Inside graphs, Dask also accepts NumPy integers and booleans."""
    record.clear(client)
    inner = [("x", np.int64(3)), ("u", np.uint8(4), np.float32(0.5)), ("b", True)]
    graph: dict[Any, Any] = {key: (abs, -i) for i, key in enumerate(inner)}
    graph["out"] = (sum, list(inner))
    with dasfprof.profile(client, directory=tmp_path) as run:
        assert client.get(graph, "out") == 3
    runs = record.task_runs(client)
    assert {one["key"] for one in runs} <= {*inner, "out"}
    assert_same_runs(run, runs)
    assert_whole(run)


def test_hostile_worker_name_and_error(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("<b>\x1b[31m\n=cmd\ud800")

    with new_client(n_workers=1, processes=False) as client:
        (worker,) = client.cluster.workers.values()
        worker.name = "../<i>\x1b[31m\n'name"
        with dasfprof.profile(client, directory=tmp_path) as run:
            future = client.submit(fail, key="fails")
            assert isinstance(future.exception(), ValueError)
    (row,) = computed(run)
    assert row["exception"] == repr(ValueError("<b>\x1b[31m\n=cmd\ud800"))
    assert row["thread_id"].endswith("../<i>\x1b[31m\n'name")
    assert {path.parent for path in run.files()} == {tmp_path}
