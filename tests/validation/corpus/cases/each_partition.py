"""A loop that computes one partition after another, each with all that they share."""

import sys
import time

import dask.dataframe as dd
import pandas as pd
from distributed import Client


def load(number: int) -> pd.DataFrame:
    time.sleep(0.1)
    return pd.DataFrame({"shop": range(2000), "price": float(number)})


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        frame = dd.from_map(load, range(8)).shuffle("shop", npartitions=8)
        if "--remedy" in sys.argv:
            frame = frame.persist()
        print(sum(len(part.compute()) for part in frame.partitions))
