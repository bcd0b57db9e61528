"""A Zarr array of small chunks on a web server, read through obstore."""

import sys
import tempfile

import dask.array as da
import numpy as np
import zarr
from distributed import Client
from obstore.store import HTTPStore
from servers.slow import serve
from zarr.storage import ObjectStore

TIMES = 16 if "--remedy" in sys.argv else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        stored = zarr.create_array(
            path, shape=(256, 20_000), chunks=(1, 20_000), dtype="f4", compressors=None
        )
        stored[:] = np.random.default_rng(0).normal(size=stored.shape)
        store = HTTPStore(serve() + path, client_options={"allow_http": True})
        array = zarr.open_array(ObjectStore(store, read_only=True), mode="r")
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            print(round(float(da.from_array(array, chunks=(TIMES, 20_000)).std().compute()), 4))
