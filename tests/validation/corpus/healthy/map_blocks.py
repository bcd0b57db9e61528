"""A function of NumPy on blocks. Healthy."""

import dask.array as da
import numpy as np
from distributed import Client


def work(b):
    for _ in range(12):
        b = np.sin(b) * 1.01 + 0.1
    return b


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        x = da.random.default_rng(0).random((12000, 6000), chunks=(1000, 1000))
        print(float(x.map_blocks(work).mean().compute()))
