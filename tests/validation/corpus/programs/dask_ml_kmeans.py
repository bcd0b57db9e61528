"""Clusters of points, by dask-ml's KMeans: a compute() of the client in each iteration."""

import dask.array as da
from dask_ml.cluster import KMeans
from distributed import Client

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        random = da.random.default_rng(1)
        centres = random.normal(0, 20, size=(6, 12), chunks=-1)
        members = random.integers(0, 6, size=160_000, chunks=20_000)
        points = centres[members] + random.normal(size=(160_000, 12), chunks=(20_000, 12))
        points = points.rechunk({1: -1}).persist()
        model = KMeans(n_clusters=6, random_state=1, init_max_iter=1, max_iter=8)
        model.fit(points)
        print(model.inertia_, model.n_iter_)
