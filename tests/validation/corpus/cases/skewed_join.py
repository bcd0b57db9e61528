"""A join whose key has one value in most rows: one output of its P2P shuffle is far larger."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client


def part(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    shop = np.where(random.random(300_000) < 0.9, 7, random.integers(0, 4000, 300_000))
    return pd.DataFrame({"shop": shop, "price": random.random(300_000)})


def report(rows: pd.DataFrame) -> pd.DataFrame:
    ranked = rows.sort_values(["name", "price"])
    return ranked.groupby("name", as_index=False).price.agg(lambda price: price.rank().median())


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        sales = dd.from_map(part, range(12))
        names = pd.DataFrame({"shop": range(4000), "name": [f"shop {i}" for i in range(4000)]})
        joined = sales.merge(dd.from_pandas(names, npartitions=8), on="shop", shuffle_method="p2p")
        meta = {"name": "object", "price": "float64"}
        print(len(joined.map_partitions(report, meta=meta).compute()))
