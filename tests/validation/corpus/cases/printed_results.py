"""A pipeline whose sums are printed on its way: each computes all before it again."""

import time

import dask.dataframe as dd
import pandas as pd
from distributed import Client


def load(number: int) -> pd.DataFrame:
    time.sleep(0.25)
    return pd.DataFrame({"shop": range(1000), "price": float(number)})


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        sales = dd.from_map(load, range(12))
        print(len(sales))
        sales = sales[sales.price > 1]
        print(sales.price.mean().compute())
        sales = sales.assign(taxed=sales.price * 1.2)
        print(sales.taxed.max().compute())
        print(sales.groupby("shop").taxed.sum().compute().sum())
