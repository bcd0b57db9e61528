"""A NumPy array of the client that is part of the graph."""

import sys

import dask.array as da
import numpy as np
from distributed import Client

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        if "--remedy" in sys.argv:
            field = da.random.random((40_000, 1000), chunks=(2000, 1000))
        else:
            field = da.from_array(np.random.random((40_000, 1000)), chunks=(2000, 1000))
        print(float(field.mean().compute()))
        print(float(field.std().compute()))
