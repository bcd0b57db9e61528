"""An aggregation into as many groups as rows, whose result is one partition."""

import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client


def part(seed: int) -> pd.DataFrame:
    names = np.random.default_rng(seed).integers(0, 10**9, 120_000)
    return pd.DataFrame({"id": [f"id {name}" for name in names], "price": 1.0})


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        many = 6 if "--remedy" in sys.argv else 1
        sales = dd.from_map(part, range(12))
        groups = sales.groupby("id").price.agg(["sum", "max"], split_out=many)
        print(len(groups.assign(mean=groups["sum"] / 2)))
