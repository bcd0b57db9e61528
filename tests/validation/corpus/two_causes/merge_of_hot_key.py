"""A merge with a hot key (repartition), then a function of each row (columns)."""

import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


def price(row):
    return row["amount"] * row["rate"] if row["amount"] > 0 else 0.0


if __name__ == "__main__":
    random, rows = np.random.default_rng(0), 3_000_000
    keys = np.where(random.random(rows) < 0.7, 7, random.integers(0, 1000, rows))
    others = {f"c{number}": random.normal(size=rows) for number in range(6)}
    sales = pd.DataFrame({"key": keys, **others, "amount": random.normal(size=rows)})
    rates = pd.DataFrame({"key": np.arange(1000), "rate": random.random(1000)})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        sales = dd.from_pandas(sales, npartitions=24)
        rates = dd.from_pandas(rates, npartitions=1 if "repartition" in REMEDIES else 4)
        merged = sales.merge(rates, on="key")
        some = merged[merged["c0"] > 1.4]
        if "columns" in REMEDIES:
            prices = (some["amount"] * some["rate"]).where(some["amount"] > 0, 0.0)
        else:
            prices = some.apply(price, axis=1, meta=("price", "f8"))
        print(round(float(prices.sum().compute()), 3))
