"""Delayed calls computed one at a time (together), each with a table of 40 MB (scatter)."""

import sys

import dask
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


@dask.delayed
def fit(table, seed):
    part = table.sample(frac=0.2, random_state=seed)
    return float(part.groupby("key")["value"].mean().sort_values().sum())


if __name__ == "__main__":
    random, rows = np.random.default_rng(0), 2_500_000
    table = pd.DataFrame({"key": random.integers(0, 5000, rows), "value": random.normal(size=rows)})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        if "scatter" in REMEDIES:
            table = client.scatter(table, broadcast=True, hash=False)
        if "together" in REMEDIES:
            fitted = dask.compute(*[fit(table, seed) for seed in range(30)])
        else:
            fitted = [fit(table, seed).compute() for seed in range(30)]
        print(round(sum(fitted), 4))
