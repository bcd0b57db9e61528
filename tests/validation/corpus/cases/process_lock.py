"""Chunks of a file that a library reads under one lock of the process, as HDF5 does."""

import tempfile
import zlib

import dask
import numpy as np
from dask.utils import SerializableLock
from distributed import Client

LIBRARY = SerializableLock("library")


def read_chunk(path: str, offset: int, length: int, lock: SerializableLock) -> float:
    with lock, open(path, "rb") as file:
        file.seek(offset)
        values = np.frombuffer(zlib.decompress(file.read(length)))
    return float(values.sum())


if __name__ == "__main__":
    rows = np.random.default_rng(1).integers(0, 9, 4_000_000).astype(float)
    chunk = zlib.compress(rows.tobytes(), 1)
    with tempfile.NamedTemporaryFile() as file:
        file.write(chunk * 2)
        file.flush()
        with Client(n_workers=1, threads_per_worker=4, dashboard_address=":0"):
            read = dask.delayed(read_chunk, pure=False)
            halves = (len(chunk) * (number % 2) for number in range(48))
            sums = [read(file.name, start, len(chunk), LIBRARY) for start in halves]
            print(sum(dask.compute(*sums)))
