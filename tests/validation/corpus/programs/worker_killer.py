"""A task that ends its worker each time that it runs: the user sees KilledWorker."""

import os

import dask
import numpy as np
from distributed import Client


def solve(seed: int) -> float:
    values = np.random.default_rng(seed).normal(size=(300, 300))
    return float(abs(np.linalg.eigvals(values)).max())


def crash(largest: float) -> float:
    os._exit(9)  # as a fault in a compiled library would


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 1})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        solved = client.map(solve, range(10))
        print(max(client.gather(solved)))
        print(client.submit(crash, 1.0).result())
