"""Maps of single times, rechunked into time series of single places."""

import sys

import dask
import dask.array as da
from distributed import Client

if __name__ == "__main__":
    dask.config.set({"array.rechunk.method": "tasks"})
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=":0"):
        field = da.random.random((240, 500, 500), chunks=(4, 500, 500))
        if "--remedy" in sys.argv:
            print(float((field - field.mean(axis=0)).max().compute()))
        else:
            series = field.rechunk((240, 50, 50))
            print(float((series - series.mean(axis=0)).max().compute()))
