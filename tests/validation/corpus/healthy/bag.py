"""Counts of words in a bag of texts. Healthy."""

import collections
import random

import dask.bag as db
from distributed import Client


def text(seed):
    r = random.Random(seed)
    return [" ".join(str(r.randrange(3000)) for _ in range(200)) for _ in range(2500)]


def count(lines):
    return collections.Counter(w for line in lines for w in line.split())


def add(a, b):
    a = collections.Counter(a)
    a.update(b)
    return a


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        b = db.from_sequence(range(24), npartitions=24).map(text)
        print(b.map(count).fold(add).compute().most_common(2))
