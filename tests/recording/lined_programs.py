"""Programs whose lines build tasks of known cost, which each task measures with a stopwatch.

A program is a function that takes a client. ``# at: NAME`` marks the line that builds the tasks
that call ``cost(…, "NAME")``. The programs are not in a test module because pytest rewrites its
code.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, get_worker

import dasfprof

#: Module of the programs' arrays. The package dask-array has the same functions.
da: Any = importlib.import_module(os.environ.get("ARRAYS", "dask.array"))
SECONDS = 0.04
#: Key, name and seconds of each call of `cost` in this process.
NOTES: list[tuple[Any, str, float]] = []


def cost(x: Any, name: str, seconds: float = SECONDS) -> Any:
    """Take some time, and record it in `NOTES`."""
    try:
        key = get_worker().get_current_task()
    except ValueError:  # Dask asks for the type of the result
        return x
    begin = time.monotonic()
    time.sleep(seconds)
    NOTES.append((key, name, time.monotonic() - begin))
    return x


def take_notes() -> list[tuple[Any, str, float]]:
    """Return the notes of this process, and clear them."""
    taken = NOTES.copy()
    NOTES.clear()
    return taken


def marked_lines(*files: str) -> dict[str, str]:
    """Return the marked lines as ``file:number`` by name."""
    return {
        found[1]: f"{Path(file).name}:{number}"
        for file in files
        for number, text in enumerate(Path(file).read_text("utf-8").splitlines(), 1)
        if (found := re.search(r"# at: (.+)$", text))
    }


def arrays(client: Client) -> None:
    x = da.random.random((8, 10), chunks=(2, 10))
    y = x.rechunk((4, 5)).map_blocks(cost, "rechunked", dtype=float)  # at: rechunked
    total = y.rechunk((8, 10)).map_blocks(cost, "whole", dtype=float)  # at: whole
    total.sum().compute()


def fused_arrays(client: Client) -> None:
    x = da.ones((8, 10), chunks=(2, 10)).map_blocks(cost, "first", dtype=float)  # at: first
    x = x + 1
    x = x.map_blocks(cost, "second", dtype=float)  # at: second
    x.sum().compute()


def dataframes(client: Client) -> None:
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        left, right = (
            dd.from_pandas(pd.DataFrame({"a": range(40), name: range(40)}), npartitions=4)
            for name in "xy"
        )
        left = left.map_partitions(cost, "before", meta=left._meta)  # at: before
        both = left.merge(right, on="a")  # at: merged
        both = both.map_partitions(cost, "after", meta=both._meta)  # at: after
        both.groupby("x").y.sum().compute()


def bags(client: Client) -> None:
    bag = db.from_sequence(range(6), npartitions=3)
    bag = bag.map(cost, "mapped")  # at: mapped
    bag.map(cost, "again").sum().compute()  # at: again


def delayed(client: Client) -> None:
    parts = [
        dask.delayed(cost)(number, "part")  # at: part
        for number in range(5)
    ]
    whole = dask.delayed(cost)(parts, "joined")  # at: joined
    whole.compute()


def futures_in_loops(client: Client) -> None:
    found = []
    for number in range(4):
        one = client.submit(cost, number, "submitted", pure=False)  # at: submitted
        found.append(client.submit(cost, one, "chained", pure=False))  # at: chained
    client.gather(found)


def sends_one(client: Client, value: Any) -> Any:
    return client.submit(len, value, pure=False).result()  # at: sent


def mapped_futures(client: Client) -> None:
    first = client.map(cost, range(6), name="of a map", pure=False)  # at: of a map
    second = client.map(cost, first, ["of another"] * 6, batch_size=2)  # at: of another
    client.gather(second)


def persisted(client: Client) -> None:
    x = da.random.random((8, 10), chunks=(2, 10)).map_blocks(cost, "kept", dtype=float)  # at: kept
    x = x.persist()
    x.map_blocks(cost, "used", dtype=float).mean().compute()  # at: used


def library(client: Client) -> None:
    from lined_library import Model

    Model().fit(da.random.random((8, 10), chunks=(2, 10))).compute()


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(function(*args))

    return wrapper


@twice
def decorated(x: Any) -> Any:
    return dask.delayed(cost)(x, "decorated")  # at: decorated


def generated(count: int) -> Iterator[Any]:
    for number in range(count):
        yield dask.delayed(cost)(number, "generated")  # at: generated


def recursive(depth: int) -> Any:
    below = recursive(depth - 1) if depth else 0
    return dask.delayed(cost)(below, "recursive")  # at: recursive


def odd_functions(client: Client) -> None:
    dask.compute(decorated(1), *generated(3), recursive(3))


def built_twice(client: Client) -> None:
    data = np.arange(8.0)
    one = da.from_array(data, chunks=2).map_blocks(cost, "equal", dtype=float)  # at: equal
    dask.compute(one.sum(), one.max())
    frame = dd.from_pandas(pd.DataFrame({"a": range(8)}), npartitions=2)
    frame = frame.map_partitions(cost, "copied", meta=frame._meta)  # at: copied
    frame.copy().a.isin([1, 2]).sum().compute()


def xarrays(client: Client) -> None:
    import xarray as xr

    data = xr.DataArray(da.random.random((8, 10), chunks=(2, 10)), dims=("t", "x"))
    slow = xr.apply_ufunc(  # at: ufunc
        cost, data, kwargs={"name": "ufunc"}, dask="parallelized", output_dtypes=[float]
    )
    (slow - slow.mean("t")).compute()


class Estimator:
    """Estimator with slow predictions, defined in the program's module."""

    def fit(self, X: Any, y: Any = None) -> Estimator:
        return self

    def predict(self, X: Any) -> Any:
        cost(0, "predicted")
        return np.zeros(len(X))


def dask_ml(client: Client) -> None:
    from dask_ml.preprocessing import StandardScaler
    from dask_ml.wrappers import ParallelPostFit

    x = StandardScaler().fit_transform(da.random.random((80, 3), chunks=(20, 3)))
    ParallelPostFit(Estimator()).predict(x).compute()  # at: predicted


def mixed(client: Client) -> None:
    parts = client.map(cost, [np.ones(3)] * 4, name="read", pure=False)  # at: read
    arrays = [da.from_delayed(part, (3,), float) for part in parts]
    x = da.stack(arrays).map_blocks(cost, "stacked", dtype=float)  # at: stacked
    x.sum().compute()


PROGRAMS = (
    *(arrays, fused_arrays, dataframes, bags, delayed, futures_in_loops, mapped_futures),
    *(persisted, library, odd_functions, built_twice, mixed),
)


def run_alone(program: str, directory: str) -> None:
    """Run a program in this process, and print its notes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with Client(**options, dashboard_address=None) as client:
        module = importlib.import_module("lined_programs")
        with dasfprof.profile(client, directory=directory):
            getattr(module, program)(client)
        notes = client.run(module.take_notes)
    print(json.dumps([(str(key), *rest) for own in notes.values() for key, *rest in own]))


if __name__ == "__main__":
    run_alone(*sys.argv[1:])
