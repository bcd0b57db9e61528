"""The spread of a Zarr array on the local disk, in chunks of 12 MB. Healthy."""

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "x.zarr"))
        stored = zarr.create_array(path, shape=(6000, 12000), chunks=(1000, 1500), dtype="f8")
        stored[:] = np.random.default_rng(1).normal(size=stored.shape)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            values = da.from_zarr(path)
            for _ in range(8):
                values = np.sqrt(values * values + 1)
            print(float(values.std().compute()))
