"""A step of an array that needs all of an axis: rechunked to one chunk, with copies of it."""

import dask
import dask.array as da
import numpy as np
from distributed import Client


def detrend(block: np.ndarray) -> np.ndarray:
    return np.concatenate([block - block.mean(axis=0), block, block * 2])


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with Client(
        n_workers=2, threads_per_worker=1, memory_limit="500MB", dashboard_address=":0"
    ) as client:
        field = da.random.random((3000, 6000), chunks=(500, 1000)).rechunk((-1, -1))
        try:
            print(float(field.map_blocks(detrend, dtype=float).sum().compute()))
        except Exception as error:
            print(type(error).__name__)
