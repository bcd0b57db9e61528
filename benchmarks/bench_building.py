"""CPU time that recording lines of the program adds to building graphs, in the client's thread."""

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

#: Collections built per round. Each has a new name.
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


def measured(build: Callable[[], Any], *, recorded: bool) -> float:
    """Return the CPU seconds of building, with or without the hooks."""
    if not recorded:
        remove_hooks()
    try:
        begin = thread_time()
        build()
        return thread_time() - begin
    finally:
        if not recorded:
            place_hooks()


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    result = Result(
        "Building", ["collections", "us each without lines", "ratio with lines (quartiles)"]
    )
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with (
        cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as directory,
        dasfprof.profile(client, directory=directory),
    ):
        for build in (arrays, dataframes, delayed):
            seconds = interleave(
                {
                    "none": partial(measured, build, recorded=False),
                    "lines": partial(measured, build, recorded=True),
                },
                options.rounds,
            )
            pairs = zip(seconds["lines"], seconds["none"], strict=True)
            ratios = [recorded / plain for recorded, plain in pairs]
            each = spread(seconds["none"])[0] / OPERATIONS * 1e6
            cell = "x{:.3f} ({:.3f} to {:.3f})".format(*spread(ratios))
            result.rows.append([build.__name__, f"{each:.1f}", cell])
            result.figures[build.__name__] = ratios
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
