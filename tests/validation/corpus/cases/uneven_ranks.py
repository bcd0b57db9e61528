"""A query engine that runs on the workers as ranks, by client.run, with files of uneven sizes."""

import sys
import time

import numpy as np
from distributed import Client

SIZES = [1.0] * 5 + [0.1] * 10


def read(seconds):
    time.sleep(seconds)
    return seconds


def rank(addresses, dask_worker):
    number = addresses.index(dask_worker.address)
    share = np.array_split(SIZES, len(addresses))[number]
    return sum(read(seconds) for seconds in share)


if __name__ == "__main__":
    with Client(n_workers=3, threads_per_worker=1, dashboard_address=":0") as client:
        client.wait_for_workers(3)
        if "--remedy" in sys.argv:
            total = sum(client.gather(client.map(read, SIZES, pure=False)))
        else:
            total = sum(
                client.run(rank, sorted(client.scheduler_info(n_workers=-1)["workers"])).values()
            )
        print(round(total, 3))
