"""Small chunks (chunks), and Python code in two threads of one process (processes)."""

import sys

import dask.array as da
import numpy as np
from distributed import Client

REMEDIES = sys.argv[1:]


def walk(block):
    total = 0.0
    for value in block.ravel()[::3].tolist():
        total += value * value if value > 0.5 else -value
    return np.full((1, 1), total)


if __name__ == "__main__":
    workers = 2 if "processes" in REMEDIES else 1
    side = 2000 if "chunks" in REMEDIES else 200
    with Client(n_workers=workers, threads_per_worker=2 // workers, dashboard_address=":0"):
        values = da.random.default_rng(0).random((8000, 4000), chunks=(side, side))
        walked = (values * 2 - values).map_blocks(walk, chunks=(1, 1))
        print(float(walked.sum().compute()) < 0)
