"""A rechunk of large blocks from rows to columns. Healthy."""

import dask.array as da
from distributed import Client


def spread(column):
    return abs(column).max() - column.std()


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        rows = da.random.default_rng(0).normal(size=(8000, 8000), chunks=(1000, 8000))
        columns = rows.rechunk((8000, 1000))
        print(float(da.apply_along_axis(spread, 0, columns[:, ::2]).sum().compute()))
