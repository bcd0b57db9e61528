"""A CSV file in small blocks (blocks), and a function of each row (columns)."""

import sys
import tempfile
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


def label(row):
    return "high" if row["a"] + row["b"] > 1 else "low"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "x.csv"))
        values = np.random.default_rng(0).random((600_000, 4))
        pd.DataFrame(values, columns=list("abcd")).to_csv(path, index=False)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            size = "8MB" if "blocks" in REMEDIES else "250kB"
            table = dd.read_csv(path, blocksize=size)
            if "columns" in REMEDIES:
                labels = (table.a + table.b).gt(1).map({True: "high", False: "low"})
            else:
                labels = table.apply(label, axis=1, meta=("label", "object"))
            means = table.assign(label=labels).groupby("label").c.mean().compute()
            print(means.sort_index().round(6).to_dict())
