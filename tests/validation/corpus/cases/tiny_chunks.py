"""An array in chunks of a few kB, as a store on disk may have them."""

import sys

import dask.array as da
from distributed import Client

if __name__ == "__main__":
    size = 500 if "--remedy" in sys.argv else 25
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        field = da.random.random((1000, 1000), chunks=(size, size))
        print(float((field - field.mean(axis=0)).std().compute()))
