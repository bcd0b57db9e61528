"""Chunks of a Dask array that are parts of the shards of the Zarr array that stores them."""

import sys
import tempfile

import dask.array as da
import zarr
from distributed import Client

if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as path,
        Client(n_workers=1, threads_per_worker=1, dashboard_address=":0"),
    ):
        target = zarr.create_array(
            path, shape=(2000, 3000), chunks=(250, 250), shards=(1000, 1500), dtype="f8"
        )
        values = da.random.default_rng(0).normal(size=target.shape, chunks=target.chunks)
        if "--remedy" in sys.argv:
            values = values.rechunk(target.shards)
        da.store(values, target, lock=False)
        print(round(float(target[:].std()), 3))
