"""A frame whose parts are put together on one worker before they go to the client."""

import sys

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client


def part(seed: int) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).random((250_000, 8)), columns=list("abcdefgh"))


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with Client(n_workers=4, threads_per_worker=1, memory_limit="330MB", dashboard_address=":0"):
        try:
            frame = dd.from_map(part, range(20))
            if "--remedy" in sys.argv:
                print(sum(map(len, dask.compute(*frame.to_delayed()))))
            else:
                print(len(frame.compute()))
        except Exception as error:
            print(type(error).__name__)
