"""HDF5 files on a web server, read through fsspec with its default cache."""

import sys
import tempfile

import fsspec
import h5py
import numpy as np
from distributed import Client
from servers.slow import serve

OPTIONS = {"cache_type": "blockcache", "block_size": 2**21} if "--remedy" in sys.argv else {}


def mean(url, name, options):
    with fsspec.open(url, **options) as file, h5py.File(file) as stored:
        return float(stored[f"months/{name}"][:].mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/data.h5"
        with h5py.File(path, "w") as file:
            for n in range(32):
                values = np.random.default_rng(n).normal(size=(60, 50, 50)).astype("f4")
                file.create_dataset(
                    f"months/{n}",
                    data=values,
                    chunks=(10, 50, 50),
                    compression="gzip",
                    compression_opts=1,
                )
        url = serve() + path
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            means = client.map(mean, [url] * 32, range(32), [OPTIONS] * 32)
            print(round(sum(client.gather(means)), 5))
