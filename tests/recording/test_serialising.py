"""What workers take to unpickle tasks and to serialise results is what the objects time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from clusters import new_client
from distributed import Client, LocalCluster, get_worker, protocol

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals.serialising import LEAST, _Spent

#: Seconds that an object sleeps as it is unpickled, and as it is pickled.
IN, OUT = 0.1, 0.05
#: What else a message takes, and a busy machine.
SLACK = 0.5


class Slow:
    """Sleeps while it is pickled and unpickled, and keeps for how long."""

    def __init__(self) -> None:
        self.pickled = self.unpickled = 0.0

    def __dask_tokenize__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        begin = time.perf_counter()
        time.sleep(OUT)
        self.pickled += time.perf_counter() - begin
        return Slow, (), {"pickled": self.pickled}

    def __setstate__(self, state: dict[str, float]) -> None:
        begin = time.perf_counter()
        time.sleep(IN)
        self.__dict__ |= state
        self.unpickled = time.perf_counter() - begin


def takes(slow: Slow, _: int) -> float:
    return slow.unpickled


def takes_too(slow: Slow, _: int) -> float:
    return slow.unpickled


def quick(number: int) -> int:
    return number


def gives(_: int) -> Slow:
    return Slow()


def uses(slow: Slow) -> tuple[float, float]:
    return slow.pickled, slow.unpickled


def counts(size: int, array: Any) -> int:
    return size + len(array)


def hooks(dask_worker: Any = None) -> list[str]:
    """What of Dask is wrapped in a worker's process."""
    wrapped = {
        "loads": protocol.loads,
        "pickle": protocol.pickle.loads,
        "get_data": (dask_worker or get_worker()).handlers["get_data"],
    }
    return [name for name, function in wrapped.items() if hasattr(function, "_dasfprof_patch")]


def told_by(client: Client) -> list[str]:
    (found,) = client.run(hooks).values()
    return list(found)


def warm_up(client: Client) -> None:
    """Let all workers import what an object needs that is unpickled."""
    client.gather([client.submit(takes, Slow(), -1, workers=[one]) for one in client.nthreads()])


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    """Workers unpickle the class of this module, too, as one of a notebook."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def of_function(trace: Any, table: pd.DataFrame, function: str) -> pd.Series[Any]:
    """The seconds of a function's rows, by key."""
    codes, names = trace.keys.functions()
    keys = table["key_id"].to_numpy()
    kept = np.array(names, dtype=object)[codes[keys]] == function
    return pd.Series(table["seconds"].to_numpy()[kept], index=keys[kept])


def test_functions_and_arguments(tmp_path: Path) -> None:
    """One by one; and several in a message, of which some are slow and others are not."""
    with new_client(n_workers=1, threads_per_worker=8) as client:
        warm_up(client)
        with dasfprof.profile(client, directory=tmp_path):
            alone = [client.submit(takes, Slow(), number).result() for number in range(3)]
            assert told_by(client) == ["loads", "get_data"]
            first: dict[str, Any] = {f"takes_too-{n}": (takes_too, Slow(), n) for n in range(2)}
            together = list(client.get(first, list(first)))
            assert told_by(client) == ["loads", "pickle", "get_data"]
            mixed: dict[str, Any] = {f"takes_too-{n}": (takes_too, Slow(), n) for n in range(2, 6)}
            mixed |= {f"quick-{n}": (quick, n) for n in range(8)}
            together += client.get(mixed, list(mixed))[:4]
        assert told_by(client) == []
    analyser = TraceAnalyser(tmp_path, progress=False)
    trace = analyser.trace
    assert trace.knows_serialising
    seconds = of_function(trace, trace.unpickled, "takes")
    assert len(seconds) == len(alone)
    for told, took in zip(sorted(seconds), sorted(alone), strict=True):
        assert took <= told + 1e-4
        assert told < took + SLACK
    seconds = of_function(trace, trace.unpickled, "takes_too")
    assert len(seconds) == len(together)
    assert sum(together) <= sum(seconds) + 1e-4 < sum(together) + 6 * SLACK
    # Of eight among twelve, whose message takes four times as long.
    assert of_function(trace, trace.unpickled, "quick").sum() < 2 * IN
    assert (trace.unpickled["cpu"] < IN).all()
    assert (trace.unpickled["size"] > 100).all()
    table = analyser.per_function_bottleneck().set_index("Function")["Unpickling (s)"]
    assert table["takes"] == pytest.approx(of_function(trace, trace.unpickled, "takes").sum())


def test_results(tmp_path: Path) -> None:
    with new_client(n_workers=2, threads_per_worker=1) as client:
        warm_up(client)
        with dasfprof.profile(client, directory=tmp_path):
            here, there = client.nthreads()
            given = [client.submit(gives, n, workers=[here], key=f"gives-{n}") for n in range(3)]
            used = client.gather([client.submit(uses, one, workers=[there]) for one in given])
            client.submit(Slow, workers=[here], key="kept-1").result()
    analyser = TraceAnalyser(tmp_path, progress=False)
    trace = analyser.trace
    seconds = of_function(trace, trace.serialised, "gives")
    pickled, unpickled = (sum(one[place] for one in used) for place in (0, 1))
    assert len(seconds) == 3
    assert pickled - 1e-3 <= seconds.sum() < pickled + 3 * SLACK
    moved = analyser.transfers(by="function").set_index("Function").loc["gives"]
    assert moved["Serialize (s)"] == pytest.approx(seconds.sum())
    assert unpickled - 1e-3 <= moved["Deserialize (s)"] < unpickled + 3 * SLACK
    by_function = analyser.per_function_bottleneck().groupby("Function")["Serialising (s)"].sum()
    assert by_function["gives"] == pytest.approx(seconds.sum())
    assert by_function["uses"] < OUT
    # The client got it, and no worker.
    assert by_function["kept"] >= OUT - LEAST
    assert "kept" not in analyser.transfers(by="function")["Function"].tolist()


def test_large_ones_beside_the_loop(tmp_path: Path) -> None:
    """Dask reads and writes messages of more than 10 MB in a thread of their own."""
    with (
        new_client(n_workers=1, threads_per_worker=1) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):
        texts = [str(number) * 160 for number in range(20_000)]
        client.submit(counts, 1, texts, key="counts-1").result()
        assert len(client.submit(list, texts, key="list-1").result()) == len(texts)
    analyser = TraceAnalyser(tmp_path, progress=False)
    table = analyser.per_function_bottleneck().set_index("Function")
    assert (table.loc[["counts", "list"], "Unpickling (s)"] >= LEAST).all()
    assert table["Serialising (s)"]["list"] >= LEAST
    assert (analyser.trace.unpickled["size"] > 1e7).all()


def test_waits_for_a_core_are_left_out() -> None:
    """A thread that never slept was on a core, or had none."""
    assert _Spent.between(1.0, (2.0, 5), (2.25, 5)).seconds == 0.25
    assert _Spent.between(1.0, (2.0, 5), (2.25, 6)).seconds == 1.0
    assert _Spent.between(0.015, (2.0, 5), (2.0005, 6)).is_slow() is False
    assert _Spent.between(0.5, (2.0, 5), (2.0005, 5)).is_slow() is False
    assert _Spent.between(0.5, (2.0, 5), (2.0005, 6)).is_slow()


def test_several_workers_of_a_process_are_not_told(tmp_path: Path) -> None:
    """A message does not say to which of them it came."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp",
            host="127.0.0.1", dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path),
    ):  # fmt: skip
        client.submit(takes, Slow(), 1).result()
    analyser = TraceAnalyser(tmp_path, progress=False)
    assert not analyser.trace.knows_serialising
    assert len(analyser.trace.unpickled) == 0
    assert analyser.per_function_bottleneck()["Unpickling (s)"].isna().all()
