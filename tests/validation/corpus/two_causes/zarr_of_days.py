"""A Zarr array of four years: a chunk per day (chunks), and two computes (together)."""

import sys
import tempfile

import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

REMEDIES = sys.argv[1:]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        days = pd.date_range("2000-01-01", periods=730)
        values = np.random.default_rng(0).normal(size=(730, 60, 90)).astype("f4")
        stored = xr.Dataset({"t": (("time", "y", "x"), values)}, {"time": days})
        stored.to_zarr(path, encoding={"t": {"chunks": (73, 60, 90)}})
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            days_in_chunk = 365 if "chunks" in REMEDIES else 1
            months = xr.open_zarr(path, chunks={"time": days_in_chunk}).t.groupby("time.month")
            mean, std = months.mean(), months.std()
            if "together" in REMEDIES:
                both = xr.Dataset({"mean": mean, "std": std}).compute()
                mean, std = both["mean"], both["std"]
            else:
                mean, std = mean.compute(), std.compute()
            print(round(float(mean.sum()), 2), round(float(std.sum()), 2))
