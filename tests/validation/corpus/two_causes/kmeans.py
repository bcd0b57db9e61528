"""Clusters of data that each iteration makes again (persist), in small chunks (chunks)."""

import sys

import dask.array as da
import numpy as np
from dask_ml.cluster import KMeans
from distributed import Client

REMEDIES = sys.argv[1:]


def load(block):
    loaded = block
    for _ in range(6):
        loaded = np.tanh(loaded) + 0.1 * block
    return loaded


if __name__ == "__main__":
    rows = 100_000 if "chunks" in REMEDIES else 15_000
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        random = da.random.default_rng(0)
        points = random.normal(size=(600_000, 8), chunks=(rows, 8)).map_blocks(load)
        if "persist" in REMEDIES:
            points = points.persist()
        model = KMeans(n_clusters=6, random_state=0, init="random", max_iter=8).fit(points)
        print(model.cluster_centers_.shape)
