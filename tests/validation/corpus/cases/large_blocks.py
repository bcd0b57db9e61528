"""Small pieces of a large HDF5 file on a web server, read in blocks of 16 MB."""

import sys
import tempfile

import fsspec
import h5py
import numpy as np
from distributed import Client
from servers.slow import serve

BLOCK = 2**18 if "--remedy" in sys.argv else 2**24


def series(url, point, block):
    with fsspec.open(url, block_size=block) as file, h5py.File(file) as stored:
        return float(stored["t"][::500, point].mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/data.h5"
        with h5py.File(path, "w") as file:
            t = file.create_dataset("t", (2000, 6000), "f8", chunks=(20, 300))
            t[:] = np.random.default_rng(0).normal(size=t.shape)
        url = serve() + path
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            means = client.map(series, [url] * 20, range(0, 6000, 300), [BLOCK] * 20)
            print(round(sum(client.gather(means)), 5))
