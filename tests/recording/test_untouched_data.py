"""Recording does not touch data: it does not unspill or reorder results, or compute attributes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from clusters import client_of, new_client
from distributed import Client, wait
from recorded_facts import assert_whole, computed

import dasfprof

#: Managed bytes of a worker above which it spills.
TARGET = 300_000
LIMIT = 1_000_000_000


@contextmanager
def spilling_cluster() -> Iterator[Client]:
    memory = {"target": TARGET / LIMIT, "spill": False, "pause": False, "terminate": False}
    sizes = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": LIMIT}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": at for name, at in memory.items()}),
        new_client(processes=False, **sizes) as client,
    ):
        yield client


def stored(client: Client) -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """Return keys in memory from oldest to newest, keys on disk, and the number of moves."""
    data = client.cluster.workers[0].data
    metrics = data.cumulative_metrics.items()
    counts = {name: value for name, value in metrics if name[1] != "seconds"}
    return list(data.fast.order), sorted(data.slow), counts


def test_spilled_results_stay_where_they_are(tmp_path: Path) -> None:
    def fill(client: Client) -> None:
        kept.append(arrays := [])
        for i in range(12):
            size = 50_000 if i % 5 else 400_000  # the larger ones are spilled when they are stored
            arrays.append(client.submit(np.ones, size, dtype="u1", key=("filled", i)))
            wait(arrays)
        arrays.append(client.submit(np.sum, arrays[3], key="uses-a-spilled-one"))
        wait(arrays)

    kept: list[Any] = []
    with spilling_cluster() as client:
        fill(client)
        without = stored(client)
    with (
        spilling_cluster() as client,
        # Sample all the time, so that the sampler is tested too.
        dasfprof.profile(client, directory=tmp_path, sample_interval=0.002) as run,
    ):
        fill(client)
        run.flush()
        assert stored(client) == without
    assert without[1], "nothing was spilled"
    assert_whole(run)
    rows = {row["key"]: row for row in computed(run)}
    assert len(rows) == 13
    # A result is described when it is computed, so also if it is spilled at once.
    assert all(rows["filled", i]["shape"] is not None for i in range(12))
    assert rows["uses-a-spilled-one"]["disk_read_size"] > 0


def test_store_that_does_not_take_a_result(tmp_path: Path) -> None:
    """It is larger than the memory and cannot be written to disk, so the task fails."""

    class Unpicklable:
        def __sizeof__(self) -> int:
            return 2 * TARGET

        def __reduce__(self) -> Any:
            raise TypeError("stays here")

    with spilling_cluster() as client, dasfprof.profile(client, directory=tmp_path) as run:
        future = client.submit(Unpicklable, key="unstorable")
        with pytest.raises(Exception, match=r"Failed to pickle|stays here"):
            future.result()
    (row,) = computed(run)
    assert (row["key"], row["state"]) == ("unstorable", "erred")
    assert row["exception"]
    assert row["duration"] > 0


asked: Counter[str] = Counter()


class Shy:
    """Object that records all attribute accesses."""

    def __getattribute__(self, name: str) -> Any:
        asked[name] += 1
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")


class ShyArray(np.ndarray):
    """Array that records attribute accesses. Its shape can be read without them."""

    def __getattribute__(self, name: str) -> Any:
        asked[name] += 1
        return super().__getattribute__(name)


class Costly:
    @property
    def shape(self) -> tuple[int, ...]:
        asked["shape"] += 1
        raise RuntimeError("computing a shape")

    @property
    def dtype(self) -> str:
        asked["dtype"] += 1
        return "float32"


class Slotted:
    """Object with these slots, one of which is empty."""

    __slots__ = ("dtype", "shape")

    def __init__(self) -> None:
        self.dtype = Costly()


class OddMeta(type):
    """Type whose name raises an exception. Dask reads `__name__`."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__mro__", "__qualname__"):
            asked[name] += 1
            raise RuntimeError(f"asked a type for {name}")
        return super().__getattribute__(name)


class Holder:
    """Object with these instance attributes."""

    def __init__(self) -> None:
        self.shape = "not a shape"
        self.dtype = {"not": "a dtype"}


def make_odd() -> Any:
    return OddMeta("Odd", (), {})()


VALUES: dict[str, tuple[Callable[[], Any], tuple[str | None, Any]]] = {
    "shy": (Shy, (None, None)),
    "shy-array": (lambda: np.zeros((2, 3)).view(ShyArray), ("float64", (2, 3))),
    "costly": (Costly, (None, None)),
    "slotted": (Slotted, (None, None)),
    "odd-type": (make_odd, (None, None)),
    "holder": (Holder, (None, None)),
    "a-type": (lambda: Costly, (None, None)),
    "delayed": (lambda: dask.delayed(sum)([1, 2]), (None, None)),
    "dask-array": (lambda: da.ones((4, 4), chunks=2), (None, None)),
    "frame": (lambda: pd.DataFrame({"shape": [1], "dtype": [2]}), (None, (1, 2))),
    "categories": (lambda: pd.Categorical(["a", "b"]), ("category", (2,))),
    "records": (lambda: np.zeros(3, dtype=[("x", "i4")]), ("[('x', '<i4')]", (3,))),
    "bytes": (lambda: b"abc", (None, None)),
    "number": (lambda: 1, (None, None)),
    "scalar": (lambda: np.float64(1), ("float64", ())),
    "array": (lambda: np.zeros((3, 4), dtype="float32"), ("float32", (3, 4))),
}


client = client_of(1, 1, processes=False)


def test_results_are_asked_for_nothing(client: Client, tmp_path: Path) -> None:
    def asked_for(name: str, run: int) -> dict[str, int]:
        """Run a task without fetching its result, and return the attributes that were read."""
        asked.clear()
        future = client.submit(VALUES[name][0], key=(name, run))
        wait(future)
        assert future.status == "finished"
        return dict(asked)

    without = {name: asked_for(name, 0) for name in VALUES}
    with dasfprof.profile(client, directory=tmp_path) as run:
        assert {name: asked_for(name, 1) for name in VALUES} == without
    rows = {row["key"][0]: row for row in computed(run)}
    assert len(rows) == len(VALUES)
    for name, (_, described) in VALUES.items():
        assert (rows[name]["dtype"], rows[name]["shape"]) == described
        assert rows[name]["state"] == "memory"
        assert rows[name]["type"]
    types = [rows[name]["type"] for name in ("bytes", "number", "scalar", "array")]
    assert types == ["bytes", "int", "numpy.float64", "numpy.ndarray"]
    assert_whole(run)
