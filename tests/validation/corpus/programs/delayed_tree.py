"""Summaries of parts combined one after another; as advised, pairwise in a tree."""

import sys
import time

import numpy as np
from dask import delayed
from distributed import Client


@delayed
def load(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=200_000)


@delayed
def combine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    for _ in range(4):
        left = np.sort(left + np.roll(right, 1))
    return left


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        begin = time.perf_counter()
        parts = [load(number) for number in range(48)]
        if "--advised" in sys.argv:
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                odd = parts[-1:] if len(parts) % 2 else []
                parts = [combine(left, right) for left, right in pairs] + odd
            whole = parts[0]
        else:
            whole = parts[0]
            for part in parts[1:]:
                whole = combine(whole, part)
        print(float(delayed(np.mean)(whole).compute()))
        print(f"{time.perf_counter() - begin:.2f} seconds")
