"""When a client's graphs were optimised, pickled and sent, by its own clock, in a real process."""

from __future__ import annotations

import importlib.util
import socket
import time
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from clusters import client_of
from distributed import Client
from recorded_facts import facts

import dasfprof

client = client_of(1, 1)


class SlowToPickle:
    def __reduce__(self) -> Any:
        time.sleep(0.2)
        return SlowToPickle, ()


def keep(x: Any) -> Any:
    return x


def sent(run: Any) -> list[dict[str, Any]]:
    return sorted(facts(run, "StepRecorder", "Graph Sent"), key=lambda event: event["timestamp"])


def test_a_program_s_pickling_and_what_comes_before(client: Client, tmp_path: Path) -> None:
    before = time.time()
    with dasfprof.profile(client, directory=tmp_path) as run:
        began = time.time()
        time.sleep(0.3)
        start = time.time()
        first = client.submit(keep, SlowToPickle(), pure=False)
        after = time.time()
        second = client.submit(keep, 1, pure=False)
        last = time.time()
        client.gather([first, second])
    one, two = sent(run)

    for event in (one, two):
        assert (event["client"], event["host"]) == (client.id, socket.gethostname())
    assert before <= one["since"] <= began
    # Names of tasks are made before the graph is pickled, of a task that is not pure by chance.
    assert start <= one["start"] <= one["timestamp"] <= after
    assert one["timestamp"] - one["start"] >= 0.2
    assert two["since"] == one["timestamp"] <= two["start"] <= two["timestamp"] <= last

    stages = run.analyser(progress=False).time_to_first_task().set_index("Stage")["Time (s)"]
    assert stages["Program"] == pytest.approx(one["start"] - one["since"], abs=0.01)
    assert stages["Pickling"] >= 0.19
    unknown = set() if importlib.util.find_spec("dask._expr") else {"Optimising"}
    assert set(stages.index[stages.isna()]) == unknown
    assert stages.sum() <= time.time() - before


def test_optimising_is_timed_until_the_next_graph(client: Client, tmp_path: Path) -> None:
    frame = dd.from_pandas(pd.DataFrame({"x": range(1000)}), npartitions=5)
    for number in range(50):
        frame = frame.assign(**{f"y{number}": frame.x + number})
    with dasfprof.profile(client, directory=tmp_path) as run:
        with dasfprof.step("s"):
            client.submit(keep, 0, pure=False).result()
        begin = time.monotonic()
        frame.optimize()
        spent = time.monotonic() - begin
        client.submit(keep, 1, pure=False).result()
        client.submit(keep, 2, pure=False).result()
    none, optimised, then = (event["optimising"] for event in sent(run))

    if none is None:  # this Dask has no method that optimises all collections
        pytest.skip("this Dask does not say when it optimises")
    assert none == then == 0
    assert 0.3 * spent <= optimised <= spent
