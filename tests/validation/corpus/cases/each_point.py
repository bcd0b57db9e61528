"""A loop in the client that computes one point of an array at a time."""

import dask.array as da
import numpy as np
from distributed import Client


def smooth(block: np.ndarray) -> np.ndarray:
    return np.sort(block, axis=0)


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        field = da.random.random((2000, 1000), chunks=(2000, 500))
        field = field.map_blocks(smooth, dtype=float)
        print(sum(float(field[10 * i, i].compute()) for i in range(60)))
