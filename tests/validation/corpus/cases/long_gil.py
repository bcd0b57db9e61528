"""A task that holds the GIL for longer than the scheduler waits for a sign of its worker."""

import re
import time

import dask
from distributed import Client


def validate(text: str) -> bool:
    return re.fullmatch("(a|aa)+b", text) is None


def nap(number: int) -> int:
    time.sleep(0.1)
    return number


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.worker-ttl": "2s"})
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        naps = client.map(nap, range(20))
        print(client.submit(validate, "a" * 40).exception())
        print(sum(client.gather(naps)))
