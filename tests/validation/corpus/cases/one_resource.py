"""Tasks that each claim the only unit of a worker's resource, whatever threads it has."""

import sys
import time

from distributed import Client


def call(number: int) -> int:
    time.sleep(0.3)
    return number


if __name__ == "__main__":
    units = 3 if "--remedy" in sys.argv else 1
    with Client(
        n_workers=2, threads_per_worker=3, resources={"process": units}, dashboard_address=":0"
    ) as client:
        calls = client.map(call, range(48), resources={"process": 1})
        print(sum(client.gather(calls)))
