"""A product of two matrices, in chunks far too small. As advised, in larger ones."""

import sys
import time

import dask.array as da
from distributed import Client

if __name__ == "__main__":
    side = 500 if "--advised" in sys.argv else 150
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        begin = time.perf_counter()
        random = da.random.default_rng(1)
        left = random.normal(size=(1500, 1500), chunks=(side, side))
        right = random.normal(size=(1500, 1500), chunks=(side, side))
        print(float((left @ right).std().compute()))
        print(f"{time.perf_counter() - begin:.2f} seconds")
