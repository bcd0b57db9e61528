"""A tree reduction by delayed. Healthy."""

import numpy as np
from dask import delayed
from distributed import Client


@delayed
def load(i):
    r = np.random.default_rng(i)
    return np.sort(r.normal(size=1_500_000))[::10]


@delayed
def merge(a, b):
    return np.sort(np.concatenate([a, b]))[::2]


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        layer = [load(i) for i in range(64)]
        while len(layer) > 1:
            layer = [merge(a, b) for a, b in zip(layer[::2], layer[1::2], strict=True)]
        print(layer[0].compute().mean())
