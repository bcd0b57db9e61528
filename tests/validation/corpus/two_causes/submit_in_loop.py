"""Tasks submitted one at a time (together), each with an array of 48 MB (scatter)."""

import sys

import numpy as np
from distributed import Client

REMEDIES = sys.argv[1:]


def score(table, seed):
    rows = np.random.default_rng(seed).integers(0, len(table), 1_500_000)
    return float(np.sort(table[rows])[::1000].sum())


if __name__ == "__main__":
    table = np.random.default_rng(0).normal(size=6_000_000)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        if "scatter" in REMEDIES:
            table = client.scatter(table, broadcast=True, hash=False)
        if "together" in REMEDIES:
            scores = client.gather([client.submit(score, table, seed) for seed in range(30)])
        else:
            scores = [client.submit(score, table, seed).result() for seed in range(30)]
        print(round(sum(scores), 3))
