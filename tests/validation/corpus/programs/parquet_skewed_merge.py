"""A merge on a key of which half of the rows have the same value: one partition is far larger."""

import tempfile

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client


def write_tables(directory: str) -> None:
    random = np.random.default_rng(1)
    for part in range(8):
        shop = np.where(random.random(200_000) < 0.5, 7, random.integers(0, 4000, 200_000))
        pd.DataFrame({"shop": shop, "price": random.random(200_000)}).to_parquet(
            f"{directory}/sales-{part}.parquet"
        )
    shops = pd.DataFrame({"shop": np.arange(4000), "name": [f"shop {i}" for i in range(4000)]})
    for part in range(8):
        shops[part::8].to_parquet(f"{directory}/shops-{part}.parquet")


def report(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(["name", "price"]).groupby("name", as_index=False).price.median()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write_tables(directory)
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            sales = dd.read_parquet(f"{directory}/sales-*.parquet")
            shops = dd.read_parquet(f"{directory}/shops-*.parquet")
            joined = sales.merge(shops, on="shop", shuffle_method="p2p")
            meta = {"name": "object", "price": "float64"}
            print(len(joined.map_partitions(report, meta=meta).compute()))
