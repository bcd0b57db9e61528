"""dask.dataframe: a compute per column (together), of tables cleaned row by row (rows)."""

import sys
import tempfile

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


def clean(table):
    if "rows" in REMEDIES:
        return table.assign(total=table["a"].clip(lower=0) + table["b"])
    totals = [max(row.a, 0.0) + row.b for _, row in table.iterrows()]
    return table.assign(total=totals)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        rows = 60_000
        values = np.random.default_rng(0).normal(size=(rows, 5))
        table = pd.DataFrame(values, columns=list("abcde")).assign(key=np.arange(rows) % 10)
        dd.from_pandas(table, npartitions=12).to_parquet(path)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            meta = table.assign(total=0.0)
            cleaned = dd.read_parquet(path).map_partitions(clean, meta=meta)
            means = [cleaned.groupby("key")[name].mean() for name in ("c", "d", "e", "total")]
            if "together" in REMEDIES:
                means = dask.compute(*means)
            else:
                means = [mean.compute() for mean in means]
            print([round(float(mean.sum()), 6) for mean in means])
