"""A sparse matrix in an HDF5 file: each block of rows is read with the whole index."""

import sys
import tempfile

import dask.array as da
import h5py
import numpy as np
from distributed import Client

ROWS, BLOCK = 6_000_000, 100_000


def sums(block_info=None, path=None, whole=True):
    begin, end = block_info[None]["array-location"][0]
    with h5py.File(path) as file:
        rows = slice(begin, end + 1)
        indptr = file["indptr"][:][rows] if whole else file["indptr"][rows]
        data = file["data"][indptr[0] : indptr[-1]]
    return np.add.reduceat(data, (indptr[:-1] - indptr[0]).astype(int))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/matrix.h5"
        with h5py.File(path, "w") as file:
            indptr = np.arange(ROWS + 1, dtype="i8") * 2
            file.create_dataset(
                "indptr", data=indptr, chunks=(1_000_000,), compression="gzip", compression_opts=1
            )
            file.create_dataset("data", data=np.ones(2 * ROWS, "f4"), chunks=(500_000,))
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            chunks = ((BLOCK,) * (ROWS // BLOCK),)
            total = da.map_blocks(
                sums,
                path=path,
                whole="--remedy" not in sys.argv,
                chunks=chunks,
                dtype="f4",
                meta=np.empty(0, "f4"),
            )
            print(float(total.sum().compute()))
