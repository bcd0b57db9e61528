"""Passes over an array that is larger than the memory of the workers; as advised, with more."""

import sys
import time

import dask.array as da
from distributed import Client

if __name__ == "__main__":
    limit = "600MB" if "--advised" in sys.argv else "450MB"
    with Client(n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"):
        begin = time.perf_counter()
        random = da.random.default_rng(1)
        x = random.normal(size=(7500, 10_000), chunks=(250, 10_000)).persist()
        for power in range(1, 4):
            print(float((x**power).mean().compute()))
        print(f"{time.perf_counter() - begin:.2f} seconds")
