"""Client calls and embedded objects, compared with stopwatches, in real processes."""

import asyncio
import importlib.util
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import client_of
from dask.base import tokenize
from distributed import Client, Future, as_completed, wait
from recorded_facts import facts

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals import client_calls

#: Seconds of slow calls, much longer than a busy machine delays fast ones.
SLOW = 0.8


client = client_of(1, 2)


@contextmanager
def watch(seconds: dict[int, float]) -> Iterator[None]:
    """Add the seconds of a block to those of its line."""
    line, begin = sys._getframe(2).f_lineno + 1, time.monotonic()
    yield
    seconds[line] = seconds.get(line, 0.0) + time.monotonic() - begin


def here() -> int:
    return sys._getframe(1).f_lineno


def calls_of(run: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the rows of `client_calls` for this file, by call and line."""
    table = run.analyser(progress=False).client_calls()
    return {
        (row["Call"], int(row["Line"])): row
        for row in table.to_dict("records")
        if row["File"] == __file__
    }


def double(x: Any) -> Any:
    return 2 * x


def double_late(x: Any) -> Any:
    time.sleep(0.02)
    return 2 * x


def keep(number: int) -> int:
    return number


def late(seconds: float, size: int) -> Any:
    time.sleep(seconds)
    return np.ones(size)


class SlowToPickle:
    def __reduce__(self) -> Any:
        time.sleep(SLOW)
        return SlowToPickle, ()


class SlowToName:
    def __dask_tokenize__(self) -> str:
        time.sleep(SLOW)
        return "name"


class SlowToUnpickle:
    def __reduce__(self) -> Any:
        return slowly, ()


def slowly() -> SlowToUnpickle:
    time.sleep(SLOW)
    return SlowToUnpickle()


def test_calls_by_line(client: Client, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seconds: dict[int, float] = {}
    with dasfprof.profile(client, directory=tmp_path) as run:
        with watch(seconds):
            futures = client.map(double_late, range(100), pure=False)
        with watch(seconds):
            wait(futures)  # a second, on two threads
        for future in futures:
            with watch(seconds):
                future.result()
        with watch(seconds):
            client.gather(futures)
        with watch(seconds):
            (held,) = client.scatter([np.ones(100_000)])
        with watch(seconds):
            client.cancel([held])
        for future in as_completed(futures[:7]):
            assert future.done()
    rows = calls_of(run)
    expected = {"map": (1, 100), "wait": (1, 100), "result": (100, 100), "gather": (1, 100)}
    expected |= {"scatter": (1, 1), "cancel": (1, 1)}
    # The program may lose the GIL between a call and the stopwatch.
    slack = 0.01 if request.config.getoption("--long") else 0.3
    for (name, numbers), (line, spent) in zip(expected.items(), seconds.items(), strict=True):
        row = rows[name, line]
        assert 0.5 * spent - slack <= row["Time (s)"] <= spent, name
        assert (row["Calls"], row["Keys"]) == numbers, name
        assert name != "wait" or row["Time (s)"] >= 0.2
        assert name != "scatter" or row["Sent (MB)"] == pytest.approx(0.8, rel=0.01)
    (row,) = (row for (name, _), row in rows.items() if name == "as_completed")
    assert (row["Calls"], row["Keys"]) == (8, 7)  # the last call finds that no result is left


def test_what_calls_spend_their_time_on(client: Client, tmp_path: Path) -> None:
    block = np.ones(500_000)
    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        future = client.submit(late, 1.5, 1_000_000, pure=False)
        future.result()
        wait(slow := client.submit(SlowToUnpickle, pure=False))
        slow.result()
        wait(futures := client.map(keep, range(50), pure=False))
        for future in futures:
            future.result()
        for future in futures:
            client.gather(future)
        client.gather(futures)
        client.gather([*futures, client.submit(late, SLOW, 1, pure=False)])
        client.submit(double, SlowToPickle(), pure=False)
        client.submit(keyless, SlowToName())
        tokenize(SlowToName())
        client.submit(double, block, pure=False)
        da.from_array(block, chunks=-1, name=False).sum().compute()
    rows = {(call, place - line): row for (call, place), row in calls_of(run).items()}
    row = rows["result", 2]
    assert row["Waiting (s)"] >= 0.5  # it may start to wait late
    assert row["Waiting (s)"] + row["Receiving (s)"] <= row["Time (s)"]
    assert row["Received (MB)"] == pytest.approx(8.0, rel=0.01)
    assert SLOW <= rows["result", 4]["Receiving (s)"] <= rows["result", 4]["Time (s)"]
    # The results had been computed before, so nearly all of a call is the transfer.
    for call in (("result", 7), ("gather", 9), ("gather", 10)):
        assert rows[call]["Waiting (s)"] == 0 < rows[call]["Receiving (s)"]
        assert rows[call]["Receiving (s)"] <= rows[call]["Time (s)"]
    assert rows["gather", 11]["Waiting (s)"] >= SLOW / 2
    pickled, named = rows["submit", 12], rows["submit", 13]
    assert SLOW <= pickled["Pickling (s)"] <= pickled["Time (s)"]
    assert pickled["Tokenising (s)"] < SLOW <= named["Tokenising (s)"] <= named["Time (s)"]
    assert named["Pickling (s)"] < SLOW
    assert rows["tokenising", 14]["Time (s)"] >= SLOW
    for call in (("submit", 15), ("compute", 16)):
        assert rows[call]["Sent (MB)"] == pytest.approx(4.0, rel=0.01)
    assert rows["compute", 16]["Waiting (s)"] > 0 < rows["compute", 16]["Pickling (s)"]
    trace = run.analyser(progress=False).trace
    assert trace.client_calls["deserialising"].max() >= SLOW
    sizes = trace.graphs_sent["size"].to_numpy()
    assert sizes[sizes > 1e6] == pytest.approx([4e6, 4e6], rel=0.01)


def keyless(x: Any) -> str:
    return type(x).__name__


class SlowSet(set[int]):
    """Set in which a thread loses its core."""

    def add(self, item: int) -> None:
        time.sleep(0.05)
        super().add(item)


def test_graph_within_call(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call does not end earlier if its thread loses its core at the start."""
    monkeypatch.setattr(client_calls, "opened", SlowSet())
    with dasfprof.profile(client, directory=tmp_path) as run:
        wait(client.map(double, range(3)))
    trace = TraceAnalyser(run.files(), progress=False).trace
    (sent,) = trace.graphs_sent["time"]
    calls = trace.client_calls
    ((begin, stop),) = calls[calls["call"] == "map"][["time", "stop"]].itertuples(index=False)
    assert begin <= sent <= stop


def test_nothing_of_it_stays_and_errors_come_through(client: Client, tmp_path: Path) -> None:
    owners = (Client, Future, as_completed)
    before = [dict(vars(owner)) for owner in owners]
    with dasfprof.profile(client, directory=tmp_path) as run:
        with pytest.raises(ZeroDivisionError):
            client.submit(divmod, 1, 0, pure=False).result()
        with pytest.raises(TypeError):
            client.submit()
        with pytest.raises(StopIteration):
            next(as_completed([]))
    assert [dict(vars(owner)) for owner in owners] == before
    trace = run.analyser(progress=False).trace
    assert set(trace.client_calls["call"]) == {"submit", "result", "as_completed", "recording"}


def test_calls_of_asynchronous_clients(tmp_path: Path) -> None:
    async def program() -> Any:
        options = {"n_workers": 1, "processes": False, "dashboard_address": None}
        async with Client(asynchronous=True, **options) as client:
            run = await dasfprof.register_default_profiler(client, directory=tmp_path)
            future = client.submit(late, 3.0, 1, pure=False)
            assert len(await future) == 1
            assert len(await client.gather([future])) == 1
            await run.stop()
            return run

    rows = calls_of(asyncio.run(program()))
    assert {"submit", "gather"} <= {name for name, _ in rows}
    # An awaited call does not block its thread.
    assert max(row["Time (s)"] for row in rows.values()) < 3.0


TABLE = {number: str(number) for number in range(15_000)}


def values_of(run: Any) -> list[dict[str, Any]]:
    table = run.analyser(progress=False).sent_values()
    return [row for row in table.to_dict("records") if row["File"] == __file__]


def bytes_of(value: Any) -> int:
    buffers: list[Any] = []
    whole = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(whole) + sum(buffer.raw().nbytes for buffer in buffers)


def test_functions_that_are_sent_by_value(client: Client, tmp_path: Path) -> None:
    block, table, small = np.ones(100_000), dict(TABLE), 3

    def use(x: int) -> float:
        return x + block[0]

    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        wait(client.map(use, range(30), pure=False))
        for number in range(8):
            client.submit(lambda x: table.get(x), number, pure=False).result()
        wait(client.map(lambda x: x + small, range(10), pure=False))
    sent = {row["Line"] - line: row for row in values_of(run)}
    assert set(sent) == {1, 3}
    assert sent[1]["Name"].endswith(".<locals>.use")
    columns = ("Kind", "By Value", "Holds", "Graphs", "Tasks")
    assert {number: tuple(row[column] for column in columns) for number, row in sent.items()} == {
        1: ("function", "defined in a function", "closure block: numpy.ndarray", 1, 30),
        3: ("function", "a lambda", "closure table: dict", 8, 8),
    }
    for number, function in ((1, use), (3, lambda x: table.get(x))):
        assert sent[number]["Size (MB)"] == pytest.approx(bytes_of(function) / 1e6, rel=0.01)


def test_arguments_that_are_sent_by_value(client: Client, tmp_path: Path) -> None:
    block, frame = np.ones(100_000), pd.DataFrame({"x": np.arange(50_000.0)})
    text = "x" * 20_000
    graph: dict[Any, Any] = {("sent", n): (double, text + str(n)) for n in range(200)}
    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        wait(client.submit(double, block, pure=False))
        da.from_array(block, chunks=5_000, name=False).sum().compute()
        dd.from_pandas(frame, npartitions=2).x.sum().compute()
        dask.compute(*(dask.delayed(double)(block) for _ in range(5)))
        client.get(graph, list(graph))
        # Names of tasks, and small arguments of many tasks, are not large objects.
        wait(client.map(double, list(range(400)), pure=False))
        wait(client.submit(len, list(range(30_000)), pure=False))
        wait(client.submit(partial(look_up, table=dict(TABLE)), 1, pure=False))
        wait(client.submit(look_up, 1, {n: str(n) * 500 for n in range(10, 60)}, pure=False))
        wait(client.map(partial(look_up, table=dict(TABLE)), range(20), pure=False))
    sent = {row["Line"] - line: row for row in values_of(run)}
    assert {row["Kind"] for row in sent.values()} == {"argument"}
    assert {number: row["Holds"].rpartition(".")[2] for number, row in sent.items()} == {
        **{1: "ndarray", 2: "ndarray", 3: "DataFrame", 4: "ndarray", 5: "str"},
        **{8: "list", 9: "dict", 10: "dict", 11: "dict"},
    }
    names = {1: "double", 4: "double", 5: "sent", 8: "len", 9: "look_up", 10: "look_up"}
    assert {number: sent[number]["Name"] for number in names} == names
    tasks = {2: 20, 4: 5, 9: 1, 10: 1, 11: 20}
    assert {number: sent[number]["Tasks"] for number in tasks} == tasks
    for number, size in ((1, bytes_of(block)), (2, 40_000), (9, bytes_of(dict(TABLE)))):
        assert sent[number]["Size (MB)"] == pytest.approx(size / 1e6, rel=0.01)
    assert sent[10]["Size (MB)"] == pytest.approx(50 * 1000 / 1e6, rel=0.2)
    # Older versions of Dask split a dataframe before sending it.
    size = sent[3]["Size (MB)"] * sent[3]["Tasks"]
    assert size == pytest.approx(bytes_of(frame) / 1e6, rel=0.01)


def test_what_cannot_be_pickled_twice_does_not_matter(client: Client, tmp_path: Path) -> None:
    """If inspecting embedded objects fails, the result is still computed and nothing is raised."""
    with dasfprof.profile(client, directory=tmp_path) as run:
        assert client.submit(len, PickledOnce(b"x" * 50_000), pure=False).result() == 50_000
    assert run.analyser(progress=False).trace.graphs_sent["size"].iloc[0] > 50_000


def look_up(x: int, table: dict[Any, Any]) -> Any:
    return table.get(x)


class PickledOnce:
    def __init__(self, data: bytes) -> None:
        self.data, self.times = data, 0

    def __len__(self) -> int:
        return len(self.data)

    def __reduce__(self) -> Any:
        self.times += 1
        if self.times > 1:
            raise TypeError("not a second time")
        return PickledOnce, (self.data,)


def graphs_sent(run: Any) -> list[dict[str, Any]]:
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
    one, two = graphs_sent(run)
    for event in (one, two):
        assert (event["client"], event["host"]) == (client.id, socket.gethostname())
    assert before <= one["since"] <= began
    # Keys are generated before the graph is pickled. Keys of impure tasks are random.
    assert start <= one["start"] <= one["timestamp"] <= after
    assert one["timestamp"] - one["start"] >= SLOW
    assert two["since"] == one["timestamp"] <= two["start"] <= two["timestamp"] <= last
    stages = run.analyser(progress=False).time_to_first_task().set_index("Stage")["Time (s)"]
    assert stages["Program"] == pytest.approx(one["start"] - one["since"], abs=0.01)
    assert stages["Pickling"] >= 0.95 * SLOW
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
    none, optimised, then = (event["optimising"] for event in graphs_sent(run))
    if none is None:  # this version of Dask has no method that optimizes all collections
        pytest.skip("this Dask does not say when it optimises")
    assert none == then == 0
    assert 0.3 * spent <= optimised <= spent
