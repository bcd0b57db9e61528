"""xarray: a Python function per pixel (columns), of small chunks (chunks)."""

import sys

import numpy as np
import xarray as xr
from distributed import Client

REMEDIES = sys.argv[1:]


def trend(series):
    days = np.arange(len(series))
    return ((days - days.mean()) * (series - series.mean())).sum() / len(series)


def trends(series):
    days = np.arange(series.shape[-1])
    centred = series - series.mean(axis=-1, keepdims=True)
    return ((days - days.mean()) * centred).sum(axis=-1) / len(days)


if __name__ == "__main__":
    values = np.random.default_rng(0).normal(size=(60, 320, 480))
    pixels = 240 if "chunks" in REMEDIES else 16
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        field = xr.DataArray(values, dims=("time", "y", "x"))
        field = field.chunk({"time": -1, "y": pixels, "x": pixels})
        slopes = xr.apply_ufunc(
            trends if "columns" in REMEDIES else trend,
            field,
            input_core_dims=[["time"]],
            vectorize="columns" not in REMEDIES,
            dask="parallelized",
            output_dtypes=["f8"],
        )
        print(round(float(abs(slopes).sum().compute()), 4))
