"""Setting an index, which reads all partitions once more to find the divisions."""

import sys
import time

import dask.dataframe as dd
import pandas as pd
from distributed import Client


def load(number: int) -> pd.DataFrame:
    time.sleep(0.3)
    return pd.DataFrame({"time": range(number, 40_000, 16), "value": float(number)})


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        frame = dd.from_map(load, range(16))
        if "--remedy" in sys.argv:
            frame = frame.persist()
        print(frame.set_index("time").value.sum().compute())
