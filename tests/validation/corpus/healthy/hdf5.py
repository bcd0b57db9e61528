"""Statistics of an HDF5 file. Healthy."""

import tempfile

import h5py
import numpy as np
from distributed import Client


def load(path, i):
    with h5py.File(path) as f:
        return f["x"][i * 1000 : (i + 1) * 1000]


def stats(a):
    q = np.quantile(a, [0.1, 0.5, 0.9], axis=0)
    return q.mean()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        with h5py.File(d + "/x.h5", "w") as f:
            f.create_dataset(
                "x", data=np.random.default_rng(0).normal(size=(24000, 1000)), chunks=(1000, 250)
            )
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as c:
            blocks = c.map(load, [d + "/x.h5"] * 24, range(24))
            print(sum(c.gather(c.map(stats, blocks))))
