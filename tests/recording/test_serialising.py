"""Recorded serialization times of results equal those that the objects measure."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from clusters import new_client

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.recording.dask_internals.serialising import LEAST, _Spent

#: Seconds for which an object sleeps when it is unpickled, and when it is pickled.
IN, OUT = 0.1, 0.05
#: Tolerance (s) for other work on a message, on a busy machine.
SLACK = 0.5


class Slow:
    """Object that sleeps while it is pickled and unpickled, and records the times."""

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


def gives(_: int) -> Slow:
    return Slow()


def uses(slow: Slow) -> tuple[float, float]:
    return slow.pickled, slow.unpickled


@pytest.fixture(scope="module", autouse=True)
def _by_value() -> Iterator[None]:
    """Pickle this module's class by value, as for a notebook."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_results(tmp_path: Path) -> None:
    with new_client(n_workers=2, threads_per_worker=1) as client:
        # All workers import what unpickling needs.
        client.gather([client.submit(uses, Slow(), workers=[each]) for each in client.nthreads()])
        with dasfprof.profile(client, directory=tmp_path):
            here, there = client.nthreads()
            given = [client.submit(gives, n, workers=[here], key=f"gives-{n}") for n in range(3)]
            used = client.gather([client.submit(uses, one, workers=[there]) for one in given])
            client.submit(Slow, workers=[here], key="kept-1").result()
            # Dask writes messages of more than 10 MB in a separate thread.
            texts = [str(number) * 160 for number in range(20_000)]
            assert len(client.submit(list, texts, key="list-1").result()) == len(texts)
    analyser = TraceAnalyser(tmp_path, progress=False)
    trace = analyser.trace
    assert trace.knows_serialising
    keys = trace.keys.texts(trace.serialised["key_id"].to_numpy())
    seconds = trace.serialised["seconds"][[str(key).startswith("gives-") for key in keys]]
    pickled, unpickled = (sum(one[place] for one in used) for place in (0, 1))
    assert len(seconds) == 3
    assert pickled - 1e-3 <= seconds.sum() < pickled + 3 * SLACK
    moved = analyser.transfers(by="function").set_index("Function").loc["gives"]
    assert moved["Serialize (s)"] == pytest.approx(seconds.sum())
    assert unpickled - 1e-3 <= moved["Deserialize (s)"] < unpickled + 3 * SLACK
    by_function = analyser.per_function_bottleneck().groupby("Function")["Serialising (s)"].sum()
    assert by_function["gives"] == pytest.approx(seconds.sum())
    assert by_function["uses"] < OUT
    assert by_function["kept"] >= OUT - LEAST
    assert by_function["list"] >= LEAST
    assert "kept" not in analyser.transfers(by="function")["Function"].tolist()


def test_waits_for_a_core_are_left_out() -> None:
    """A thread that never slept was either on a core or waiting for one."""
    assert _Spent.between(1.0, (2.0, 5), (2.25, 5)).seconds == 0.25
    assert _Spent.between(1.0, (2.0, 5), (2.25, 6)).seconds == 1.0
    assert _Spent.between(0.015, (2.0, 5), (2.0005, 6)).is_slow() is False
    assert _Spent.between(0.5, (2.0, 5), (2.0005, 5)).is_slow() is False
    assert _Spent.between(0.5, (2.0, 5), (2.0005, 6)).is_slow()
