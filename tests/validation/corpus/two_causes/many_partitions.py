"""dask.dataframe: many small partitions (partitions), and loops over rows of groups (columns)."""

import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

REMEDIES = sys.argv[1:]


def balance(group):
    if "columns" in REMEDIES:
        return (group["amount"] * group["sign"]).sum()
    total = 0.0
    for _, row in group.iterrows():
        total += row["amount"] * row["sign"]
    return total


if __name__ == "__main__":
    random, rows = np.random.default_rng(0), 60_000
    table = pd.DataFrame({"account": random.integers(0, 600, rows), "amount": random.random(rows)})
    table["sign"] = random.choice([-1.0, 1.0], rows)
    partitions = 4 if "partitions" in REMEDIES else 200
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        accounts = dd.from_pandas(table, npartitions=partitions)
        balances = accounts.groupby("account").apply(balance, meta=("balance", "f8"))
        print(round(float(balances.compute().abs().sum()), 4))
