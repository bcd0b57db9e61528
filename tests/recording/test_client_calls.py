"""What a client's program calls, against a stopwatch of the program's own, in real processes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator
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
from dask.base import tokenize
from distributed import Client, Future, LocalCluster, as_completed, wait

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals import client_calls

#: Seconds for which what is slow sleeps: far longer than a busy machine holds up what is not.
SLOW = 0.8


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


class Watch:
    """Takes the seconds of a block, and the line that it ends on."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def __enter__(self) -> Watch:
        self._begin = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.monotonic() - self._begin
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        line = frame.f_back.f_lineno + 1  # the call stands beneath its `with`
        self.seconds[line] = self.seconds.get(line, 0.0) + seconds


def here() -> int:
    """The line that calls."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def calls_of(run: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of `client_calls` of this file, by call and line."""
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
    watch = Watch()
    with dasfprof.profile(client, directory=tmp_path) as run:
        with watch:
            futures = client.map(double_late, range(100), pure=False)
        with watch:
            wait(futures)  # a second, on two threads
        for future in futures:
            with watch:
                future.result()
        with watch:
            client.gather(futures)
        with watch:
            (held,) = client.scatter([np.ones(100_000)])
        with watch:
            client.cancel([held])
        for future in as_completed(futures[:7]):
            assert future.done()
    found = calls_of(run)
    names = ("map", "wait", "result", "gather", "scatter", "cancel")
    expected = dict(zip(names, watch.seconds.items(), strict=True))
    # The program may lose the interpreter's lock between a call and the stopwatch.
    slack = 0.01 if request.config.getoption("--long") else 0.3
    for name, (line, seconds) in expected.items():
        row = found[name, line]
        assert 0.5 * seconds - slack <= row["Time (s)"] <= seconds, name
    assert found["wait", expected["wait"][0]]["Time (s)"] >= 0.2
    numbers = {
        name: (found[name, line]["Calls"], found[name, line]["Keys"])
        for name, (line, _) in expected.items()
    }
    assert numbers == {
        "map": (1, 100),
        "wait": (1, 100),
        "result": (100, 100),
        "gather": (1, 100),
        "scatter": (1, 1),
        "cancel": (1, 1),
    }
    assert found["scatter", expected["scatter"][0]]["Sent (MB)"] == pytest.approx(0.8, rel=0.01)
    ((completed, _),) = (row for row in found if row[0] == "as_completed")
    row = next(row for (name, _), row in found.items() if name == completed)
    assert (row["Calls"], row["Keys"]) == (8, 7)  # the last finds that there is no more


def test_waiting_and_receiving(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        future = client.submit(late, 1.5, 1_000_000, pure=False)
        begin = time.monotonic()
        future.result()
        whole, first = time.monotonic() - begin, here() - 1
        slow = client.submit(SlowToUnpickle, pure=False)
        wait(slow)
        begin = time.monotonic()
        slow.result()
        unpickled, second = time.monotonic() - begin, here() - 1
    found = calls_of(run)
    row = found["result", first]
    assert 0.5 <= row["Waiting (s)"] <= whole  # it may begin to wait late
    assert row["Waiting (s)"] + row["Receiving (s)"] <= row["Time (s)"] <= whole
    assert row["Received (MB)"] == pytest.approx(8.0, rel=0.01)
    row = found["result", second]
    assert SLOW <= row["Receiving (s)"] <= row["Time (s)"] <= unpickled
    trace = run.analyser(progress=False).trace
    assert trace.client_calls["deserialising"].max() >= SLOW


def test_nobody_waits_for_what_was_computed_before(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        futures = client.map(keep, range(50), pure=False)
        wait(futures)
        line = here()
        for future in futures:
            future.result()
        for future in futures:
            client.gather(future)
        client.gather(futures)
        client.gather([*futures, client.submit(late, SLOW, 1, pure=False)])
    found = calls_of(run)
    for call, place in (("result", line + 2), ("gather", line + 4), ("gather", line + 5)):
        row = found[call, place]
        # All of a call but what it takes to begin and to end is the way there and back.
        assert row["Waiting (s)"] == 0 < row["Receiving (s)"] <= row["Time (s)"]
    assert found["gather", line + 6]["Waiting (s)"] >= SLOW / 2


def test_pickling_and_names(client: Client, tmp_path: Path) -> None:
    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        client.submit(double, SlowToPickle(), pure=False)
        client.submit(keyless, SlowToName())
        tokenize(SlowToName())
    found = calls_of(run)
    pickled, named = found["submit", line + 1], found["submit", line + 2]
    assert SLOW <= pickled["Pickling (s)"] <= pickled["Time (s)"]
    assert pickled["Tokenising (s)"] < SLOW <= named["Tokenising (s)"] <= named["Time (s)"]
    assert named["Pickling (s)"] < SLOW
    assert found["tokenising", line + 3]["Time (s)"] >= SLOW


def keyless(x: Any) -> str:
    return type(x).__name__


def test_what_is_sent(client: Client, tmp_path: Path) -> None:
    block = np.ones(500_000)
    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        client.submit(double, block, pure=False)
        da.from_array(block, chunks=-1, name=False).sum().compute()
    found = calls_of(run)
    assert found["submit", line + 1]["Sent (MB)"] == pytest.approx(4.0, rel=0.01)
    computed = found["compute", line + 2]
    assert computed["Sent (MB)"] == pytest.approx(4.0, rel=0.01)
    assert computed["Waiting (s)"] > 0 < computed["Pickling (s)"]
    sizes = run.analyser(progress=False).trace.graphs_sent["size"].to_numpy()
    assert sizes == pytest.approx([4e6, 4e6], rel=0.01)


class SlowSet(set[int]):
    """A set in which a thread loses its core."""

    def add(self, item: int) -> None:
        time.sleep(0.05)
        super().add(item)


def test_a_graph_is_sent_within_its_call(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may lose its core at the begin of a call, which does not end earlier for that."""
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
        async with (
            LocalCluster(
                n_workers=1, processes=False, dashboard_address=None, asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            run = await dasfprof.register_default_profiler(client, directory=tmp_path)
            future = client.submit(late, 3.0, 1, pure=False)
            assert len(await future) == 1
            assert len(await client.gather([future])) == 1
            await run.stop()
            return run

    found = calls_of(asyncio.run(program()))
    seconds = {name: row["Time (s)"] for (name, _), row in found.items()}
    assert {"submit", "gather"} <= set(seconds)
    assert max(seconds.values()) < 3.0  # a call that is awaited waits for nobody


TABLE = {number: str(number) for number in range(15_000)}


def values_of(run: Any) -> list[dict[str, Any]]:
    table = run.analyser(progress=False).sent_values()
    return [row for row in table.to_dict("records") if row["File"] == __file__]


def bytes_of(value: Any) -> int:
    buffers: list[Any] = []
    whole = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(whole) + sum(buffer.raw().nbytes for buffer in buffers)


def test_functions_that_are_sent_by_value(client: Client, tmp_path: Path) -> None:
    block = np.ones(100_000)

    def use(x: int) -> float:
        return x + block[0]

    table = dict(TABLE)
    small = 3
    with dasfprof.profile(client, directory=tmp_path) as run:
        line = here()
        wait(client.map(use, range(30), pure=False))
        for number in range(8):
            client.submit(lambda x: table.get(x), number, pure=False).result()
        wait(client.map(lambda x: x + small, range(10), pure=False))
    found = {row["Line"] - line: row for row in values_of(run)}
    assert set(found) == {1, 3}
    mapped, submitted = found[1], found[3]
    assert mapped["Kind"] == submitted["Kind"] == "function"
    assert mapped["Name"].endswith(".<locals>.use")
    assert (mapped["By Value"], submitted["By Value"]) == ("defined in a function", "a lambda")
    assert mapped["Holds"] == "closure block: numpy.ndarray"
    assert submitted["Holds"] == "closure table: dict"
    assert mapped["Size (MB)"] == pytest.approx(bytes_of(use) / 1e6, rel=0.01)
    assert submitted["Size (MB)"] == pytest.approx(bytes_of(lambda x: table.get(x)) / 1e6, rel=0.01)
    assert (mapped["Graphs"], mapped["Tasks"]) == (1, 30)
    assert (submitted["Graphs"], submitted["Tasks"]) == (8, 8)


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
        # Names of tasks, and small arguments of many, are no large values.
        wait(client.map(double, list(range(400)), pure=False))
        wait(client.submit(len, list(range(30_000)), pure=False))
        wait(client.submit(partial(look_up, table=dict(TABLE)), 1, pure=False))
        wait(client.submit(look_up, 1, {n: str(n) * 500 for n in range(10, 60)}, pure=False))
        wait(client.map(partial(look_up, table=dict(TABLE)), range(20), pure=False))
    found = {row["Line"] - line: row for row in values_of(run)}
    assert {row["Kind"] for row in found.values()} == {"argument"}
    assert set(found) == {1, 2, 3, 4, 5, 8, 9, 10, 11}
    assert [found[number]["Holds"] for number in (9, 10, 11)] == ["builtins.dict"] * 3
    assert [found[number]["Name"] for number in (9, 10, 11)] == ["look_up"] * 3
    assert found[9]["Size (MB)"] == pytest.approx(bytes_of(dict(TABLE)) / 1e6, rel=0.01)
    assert found[10]["Size (MB)"] == pytest.approx(50 * 1000 / 1e6, rel=0.2)
    assert [found[number]["Tasks"] for number in (9, 10, 11)] == [1, 1, 20]
    assert (found[8]["Name"], found[8]["Holds"]) == ("len", "builtins.list")
    types = [found[number]["Holds"].rpartition(".")[2] for number in (1, 2, 3, 4, 5)]
    assert types == ["ndarray", "ndarray", "DataFrame", "ndarray", "str"]
    assert found[1]["Name"] == found[4]["Name"] == "double"
    assert found[1]["Size (MB)"] == pytest.approx(bytes_of(block) / 1e6, rel=0.01)
    assert found[2]["Size (MB)"] == pytest.approx(0.04, rel=0.01)
    assert found[2]["Tasks"] == 20
    # Older versions of Dask cut a dataframe up before they send it.
    whole = found[3]["Size (MB)"] * found[3]["Tasks"]
    assert whole == pytest.approx(bytes_of(frame) / 1e6, rel=0.01)
    assert found[4]["Tasks"] == 5
    assert found[5]["Name"] == "sent"


def test_what_cannot_be_pickled_twice_does_not_matter(client: Client, tmp_path: Path) -> None:
    """A look at what is sent may fail: the result is there, and nothing is raised."""
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
