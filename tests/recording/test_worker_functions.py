"""Functions that run on workers outside of tasks are recorded, drawn and accounted for."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from distributed import Client, LocalCluster
from recorded_facts import facts
from refuters import refute

import dasfprof

#: CPU seconds of `burn`, and seconds for which `sleep_beside` waits.
CPU, NAP = 1.0, 0.3


def burn() -> int:
    begin = time.thread_time()
    while time.thread_time() - begin < CPU:
        pass
    return 7


async def sleep_beside(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def fail(dask_worker: Any) -> None:
    raise KeyError(dask_worker.name)


def handler(dask_worker: Any) -> str:
    return str(dask_worker.handlers["run"].__code__.co_filename)


class Recorded(NamedTuple):
    analyser: dasfprof.TraceAnalyser
    rows: dict[str, dict[str, Any]]
    answers: list[Any]
    directory: Path
    #: Whether the worker's handler is Dask's own after the recording.
    is_restored: bool


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("functions")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        before = client.run(handler)
        with dasfprof.profile(client, directory=directory, name="r") as run:
            client.submit(abs, -1).result()
            answers = [*client.run(burn).values(), *client.run(sleep_beside, NAP).values()]
            with pytest.raises(KeyError):
                client.run(fail)
            client.submit(abs, -2).result()
        after = client.run(handler)
    rows = {row["function"]: row for row in facts(run, "TracePlugin", "Worker Function")}
    return Recorded(run.analyser(), rows, answers, directory, before == after)


def test_results_are_those_without_the_profiler(recorded: Recorded) -> None:
    assert recorded.answers == [7, NAP]
    assert recorded.is_restored


def test_each_function_has_its_cpu_and_state(recorded: Recorded) -> None:
    names = {name.rpartition(".")[2]: row for name, row in recorded.rows.items()}
    assert set(names) == {"burn", "sleep_beside", "fail"}  # none of dasfprof's own
    assert {name: row["state"] for name, row in names.items()} == {
        "burn": "success",
        "sleep_beside": "success",
        "fail": "failed",
    }
    assert CPU <= names["burn"]["cpu"] <= names["burn"]["duration"] + 0.01
    assert names["sleep_beside"]["duration"] >= NAP
    assert names["sleep_beside"]["cpu"] < NAP


def test_threads_idle_for_the_function_and_not_for_the_client(recorded: Recorded) -> None:
    seconds = recorded.analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    assert seconds["Functions outside tasks"] >= 2 * CPU
    rules = set(recorded.analyser.diagnose()["Rule"])
    assert "client-bound" not in rules
    assert not refute(recorded.directory, recorded.analyser.findings())


def test_the_client_s_call_has_its_line(recorded: Recorded) -> None:
    calls = recorded.analyser.trace.client_calls
    runs = calls[(calls["call"].astype(object) == "run").to_numpy()]
    assert int(runs["calls"].sum()) == 3
    assert set(runs["file"].astype(object)) == {__file__}
    assert runs["waiting"].sum() >= CPU + NAP


def test_functions_are_drawn(recorded: Recorded, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    recorded.analyser.export(path, to="perfetto")
    events = json.loads(path.read_text())["traceEvents"]
    drawn = {one["name"] for one in events if one.get("cat") == "function outside tasks"}
    assert any("burn" in name for name in drawn)
