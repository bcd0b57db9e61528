"""A bag with a partition for each five items (partitions), computed twice (together)."""

import sys

import dask
import dask.bag as db
from distributed import Client

REMEDIES = sys.argv[1:]


def parse(number):
    value = sum((step * number) % 97 for step in range(2000))
    return {"value": value, "kind": number % 7}


if __name__ == "__main__":
    partitions = 20 if "partitions" in REMEDIES else 1200
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        parsed = db.from_sequence(range(6000), npartitions=partitions).map(parse)
        total, kinds = parsed.pluck("value").sum(), parsed.pluck("kind").frequencies()
        if "together" in REMEDIES:
            total, kinds = dask.compute(total, kinds)
        else:
            total, kinds = total.compute(), kinds.compute()
        print(total, sorted(kinds))
