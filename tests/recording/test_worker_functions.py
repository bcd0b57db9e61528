"""Functions that run on workers outside tasks are recorded, shown and accounted for."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from clusters import new_client
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


def test_functions_are_recorded_with_cpu_state_and_lines_and_restored(tmp_path: Path) -> None:
    with new_client(n_workers=1, threads_per_worker=2, processes=False) as client:
        before = client.run(handler)
        with dasfprof.profile(client, directory=tmp_path) as run:
            client.submit(abs, -1).result()
            answers = [*client.run(burn).values(), *client.run(sleep_beside, NAP).values()]
            with pytest.raises(KeyError):
                client.run(fail)
            client.submit(abs, -2).result()
        assert client.run(handler) == before
    assert answers == [7, NAP]
    rows = facts(run, "TracePlugin", "Worker Function")
    names = {row["function"].rpartition(".")[2]: row for row in rows}
    assert {name: row["state"] for name, row in names.items()} == {  # none of dasfprof's functions
        "burn": "success", "sleep_beside": "success", "fail": "failed",
    }  # fmt: skip
    assert CPU <= names["burn"]["cpu"] <= names["burn"]["duration"] + 0.01
    assert names["sleep_beside"]["duration"] >= NAP
    assert names["sleep_beside"]["cpu"] < NAP

    # Threads are idle because of the function, not of the client, whose calls have lines.
    analyser = run.analyser(progress=False)
    seconds = analyser.time_accounting().set_index("Class")["Thread Time (s)"]
    assert seconds["Functions outside tasks"] >= 2 * CPU
    assert "client-bound" not in {finding.rule for finding in analyser.findings()}
    assert not refute(tmp_path, analyser.findings())
    calls = analyser.trace.client_calls
    runs = calls[(calls["call"].astype(object) == "run").to_numpy()]
    assert int(runs["calls"].sum()) == 3
    assert set(runs["file"].astype(object)) == {__file__}
    assert runs["waiting"].sum() >= CPU + NAP
    path = tmp_path / "trace.json"
    analyser.export(path, to="perfetto")
    events = json.loads(path.read_text())["traceEvents"]
    drawn = {event["name"] for event in events if event.get("cat") == "function outside tasks"}
    assert any("burn" in name for name in drawn)
