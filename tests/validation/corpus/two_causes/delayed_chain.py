"""dask.delayed: results added up one after another (tree), with a dict sent each time (wrap)."""

import sys

import dask
import numpy as np
from distributed import Client

REMEDIES = sys.argv[1:]


@dask.delayed
def load(number, names):
    values = np.random.default_rng(number).random(200_000)
    return np.sort(values) + len(names)


@dask.delayed
def combine(left, right):
    both = np.concatenate([left, right])
    for _ in range(6):
        both = np.sort(both[::-1] % 1.7)
    return both[::2]


if __name__ == "__main__":
    names = {number: str(number) for number in range(60_000)}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        given = dask.delayed(names, traverse=False) if "wrap" in REMEDIES else names
        parts = [load(number, given) for number in range(32)]
        if "tree" in REMEDIES:
            while len(parts) > 1:
                parts = [combine(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            result = parts[0]
        else:
            result = parts[0]
            for part in parts[1:]:
                result = combine(result, part)
        print(len(result.compute()))
