"""Groupby of a Parquet dataset. Healthy."""

import tempfile

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        rng = np.random.default_rng(0)
        for i in range(16):
            pd.DataFrame(
                {
                    "k": rng.integers(0, 100, 800_000),
                    "v": rng.normal(size=800_000),
                    "w": rng.normal(size=800_000),
                }
            ).to_parquet(f"{d}/{i:02}.parquet")
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            f = dd.read_parquet(d)
            f["z"] = (f.v**2 + f.w**2) ** 0.5
            print(f.groupby("k").agg({"z": ["mean", "std", "max"], "v": "sum"}).compute().shape)
            print(float(f.z.quantile(0.5).compute()))
