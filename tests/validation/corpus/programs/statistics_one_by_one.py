"""Several statistics of simulated parts, a compute() for each; as advised, all in one."""

import sys
import time

import dask
import numpy as np
from dask import delayed
from distributed import Client


@delayed(pure=True)
def simulate(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2.0, size=2_000_000)


@delayed(pure=True)
def largest(part: np.ndarray) -> float:
    return float(part.max())


@delayed(pure=True)
def mean(part: np.ndarray) -> float:
    return float(part.mean())


@delayed(pure=True)
def spread(part: np.ndarray) -> float:
    return float(part.std())


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        begin = time.perf_counter()
        parts = [simulate(seed) for seed in range(12)]
        wanted = [[statistic(part) for part in parts] for statistic in (largest, mean, spread)]
        if "--advised" in sys.argv:
            values = dask.compute(*wanted)
        else:
            values = [dask.compute(*own) for own in wanted]
        print([sum(own) / len(own) for own in values])
        print(f"{time.perf_counter() - begin:.2f} seconds")
