"""Monthly climatology with chunks that fit. Healthy."""

import dask.array as da
import pandas as pd
import xarray as xr
from distributed import Client

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        days = pd.date_range("2000-01-01", periods=3652)
        v = da.random.default_rng(1).normal(15, 8, size=(len(days), 240, 240), chunks=(-1, 60, 80))
        f = xr.DataArray(v, dims=("time", "y", "x"), coords={"time": days})
        anomaly = (f - f.mean("time")) / f.std("time")
        print(float((anomaly > 2).sum().compute()), float(f.max().compute()))
