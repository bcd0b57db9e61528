"""Means of a Zarr array in a store that answers after 30 ms, in chunks of 12 MB. Healthy."""

import asyncio
import tempfile

import numpy as np
import zarr
from distributed import Client
from zarr.storage import LocalStore


class DistantStore(LocalStore):
    """A store with the latency of a network."""

    async def get(self, *arguments, **options):
        await asyncio.sleep(0.03)
        return await super().get(*arguments, **options)


def mean_of_rows(path, number):
    rows = slice(number * 500, (number + 1) * 500)
    block = zarr.open_array(DistantStore(path), mode="r")[rows]
    for _ in range(12):
        block = np.sqrt(block * block + 1)
    return float(block.mean())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        stored = zarr.create_array(
            LocalStore(path), shape=(12000, 3000), chunks=(500, 3000), dtype="f8"
        )
        stored[:] = np.random.default_rng(0).normal(size=stored.shape)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            print(sum(client.gather(client.map(mean_of_rows, [path] * 24, range(24)))))
