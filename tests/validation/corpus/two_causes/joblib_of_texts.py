"""joblib: Python code in two threads of a worker (processes), with a large argument (scatter)."""

import sys

import joblib
import numpy as np
from distributed import Client

REMEDIES = sys.argv[1:]


def distance(table, start):
    row, total = table[start].tolist(), 0.0
    for other in table[start + 1 : start + 1500, :60].tolist():
        total += sum((a - b) * (a - b) for a, b in zip(row, other, strict=False))
    return total


if __name__ == "__main__":
    table = np.random.default_rng(0).random((20_000, 200))
    workers = 2 if "processes" in REMEDIES else 1
    backend = {"scatter": [table]} if "scatter" in REMEDIES else {}
    with Client(n_workers=workers, threads_per_worker=2 // workers, dashboard_address=":0"):
        with joblib.parallel_backend("dask", **backend):
            parallel = joblib.Parallel()
            found = parallel(joblib.delayed(distance)(table, n * 30) for n in range(600))
        print(round(sum(found), 3))
