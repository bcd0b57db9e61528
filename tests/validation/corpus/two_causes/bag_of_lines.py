"""dask.bag: one partition of all lines (partitions), parsed for each of two results (together)."""

import json
import sys

import dask
import dask.bag as db
from distributed import Client

REMEDIES = sys.argv[1:]


def line(number):
    return json.dumps({"key": number % 50, "values": list(range(number % 200))})


def parse(text):
    record = json.loads(text)
    return record["key"], sum(value * value % 7 for value in record["values"])


if __name__ == "__main__":
    lines = [line(number) for number in range(120_000)]
    partitions = {"npartitions": 16 if "partitions" in REMEDIES else 1}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        parsed = db.from_sequence(lines, **partitions).map(parse)
        total, most = parsed.pluck(1).sum(), parsed.pluck(1).max()
        if "together" in REMEDIES:
            total, most = dask.compute(total, most)
        else:
            total, most = total.compute(), most.compute()
        print(total, most)
