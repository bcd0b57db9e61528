"""Orders and customers in Parquet files, merged and grouped: two P2P shuffles. Healthy."""

import tempfile

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

CUSTOMERS, ORDERS = 200_000, 1_500_000


def write_tables(directory: str) -> None:
    random = np.random.default_rng(1)
    customers = pd.DataFrame(
        {
            "customer": random.permutation(CUSTOMERS),
            "nation": random.integers(0, 25, CUSTOMERS),
            "balance": random.normal(1000, 300, CUSTOMERS),
        }
    )
    for part in range(8):
        orders = pd.DataFrame(
            {
                "customer": random.integers(0, CUSTOMERS, ORDERS // 8),
                "price": random.gamma(2.0, 50.0, ORDERS // 8),
                "day": random.integers(0, 2000, ORDERS // 8),
            }
        )
        orders.to_parquet(f"{directory}/orders-{part}.parquet")
        customers[part::8].to_parquet(f"{directory}/customers-{part}.parquet")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write_tables(directory)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            orders = dd.read_parquet(f"{directory}/orders-*.parquet")
            customers = dd.read_parquet(f"{directory}/customers-*.parquet")
            joined = orders.merge(customers, on="customer", shuffle_method="p2p")
            by_nation = joined.groupby("nation").price.agg(["sum", "mean", "count"])
            by_customer = orders.groupby("customer").price.sum(split_out=4)
            print(*dask.compute(by_nation, by_customer.nlargest(3)))
