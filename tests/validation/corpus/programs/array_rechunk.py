"""An array from row chunks to column chunks, by P2P, and a cumulative sum. Healthy."""

import dask
import dask.array as da
from distributed import Client

if __name__ == "__main__":
    dask.config.set({"array.rechunk.method": "p2p"})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        random = da.random.default_rng(1)
        rows = random.normal(size=(8000, 6000), chunks=(500, 6000))
        columns = rows.rechunk((8000, 375))
        print(float(columns.cumsum(axis=0).std().compute()))
