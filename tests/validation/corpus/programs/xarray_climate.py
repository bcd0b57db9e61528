"""Monthly means and rolling means of a temperature field, by xarray. Healthy."""

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client


def temperatures() -> xr.DataArray:
    days = pd.date_range("2000-01-01", periods=3650)
    random = da.random.default_rng(1)
    values = random.normal(15, 8, size=(len(days), 180, 120), chunks=(-1, 90, 30))
    return xr.DataArray(
        values.astype("float32"),
        dims=("time", "latitude", "longitude"),
        coords={"time": days, "latitude": np.linspace(-90, 90, 180)},
    )


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        field = temperatures()
        months = field.groupby("time.month").mean()
        smooth = field.mean("latitude").rolling(time=30).mean().max("time")
        months, smooth = xr.Dataset({"months": months, "smooth": smooth}).compute().values()
        print(float(months.mean()), float(smooth.max()))
