"""dask.delayed: CSV files read by the slow parser (parser), concatenated in the client (tasks)."""

import sys
import tempfile
from pathlib import Path

import dask
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


@dask.delayed
def read(path):
    if "parser" in REMEDIES:
        return pd.read_csv(path, sep=";")
    return pd.read_csv(path, sep=None, engine="python")


@dask.delayed
def totals(table):
    return table.groupby("name")[["a", "b"]].sum()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        random, rows = np.random.default_rng(0), 50_000
        for number in range(12):
            table = pd.DataFrame(random.random((rows, 2)), columns=["a", "b"]).round(6)
            for column in "cdef":
                table[column] = random.integers(0, 100_000, rows).astype(str)
            table["name"] = random.choice(["north", "south", "east", "west"], rows)
            table.to_csv(Path(directory, f"{number}.csv"), sep=";", index=False)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            tables = [read(path) for path in sorted(map(str, Path(directory).glob("*.csv")))]
            if "tasks" in REMEDIES:
                parts = dask.compute(*[totals(table) for table in tables])
                sums = pd.concat(parts).groupby(level=0).sum()
            else:
                sums = pd.concat(dask.compute(*tables)).groupby("name")[["a", "b"]].sum()
            print(sums.round(3).to_dict())
