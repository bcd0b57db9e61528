"""dask.array: a product in small chunks (chunks), computed for each of three results (persist)."""

import sys

import dask.array as da
from distributed import Client

REMEDIES = sys.argv[1:]

if __name__ == "__main__":
    side = 1250 if "chunks" in REMEDIES else 250
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        random = da.random.default_rng(0)
        left = random.normal(size=(2500, 2500), chunks=(side, side))
        right = random.normal(size=(2500, 2500), chunks=(side, side))
        product = left @ right
        if "persist" in REMEDIES:
            product = product.persist()
        norm = float((product**2).sum().compute())
        trace = float(da.diag(product).sum().compute())
        top = float(abs(product).max().compute())
        print(norm > 0, abs(trace) > 0, top > 0)
