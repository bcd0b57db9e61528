"""What noting the lines of a program adds to building graphs, by CPU of the thread that builds."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from time import thread_time
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster
from measure import Result, interleave, spread

import dasfprof
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks

#: Collections that are built a round; each of a name that was not there before.
OPERATIONS = 1000
_numbers = itertools.count()


def arrays() -> Any:
    x = da.ones((40, 40), chunks=(10, 10))
    return [x + next(_numbers) for _ in range(OPERATIONS)]


def dataframes() -> Any:
    frame = dd.from_pandas(pd.DataFrame({"a": range(40)}), npartitions=4)
    return [frame.a + next(_numbers) for _ in range(OPERATIONS)]


def delayed() -> Any:
    add = dask.delayed(int, pure=True)
    return [add(next(_numbers)) for _ in range(OPERATIONS)]


def measured(build: Callable[[], Any], *, noted: bool) -> float:
    """Return the CPU seconds of building, with the hooks or without."""
    if not noted:
        remove_hooks()
    try:
        begin = thread_time()
        build()
        return thread_time() - begin
    finally:
        if not noted:
            place_hooks()


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    result = Result("Building", ["collections", "us each without", "ratio with lines (quartiles)"])
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with (
        cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as directory,
        dasfprof.profile(client, directory=directory),
    ):
        for build in (arrays, dataframes, delayed):
            found = interleave(
                {
                    "none": partial(measured, build, noted=False),
                    "lines": partial(measured, build, noted=True),
                },
                options.rounds,
            )
            pairs = zip(found["lines"], found["none"], strict=True)
            ratios = [one / other for one, other in pairs]
            each = spread(found["none"])[0] / OPERATIONS * 1e6
            told = "x{:.3f} ({:.3f} to {:.3f})".format(*spread(ratios))
            result.rows.append([build.__name__, f"{each:.1f}", told])
            result.figures[build.__name__] = ratios
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
