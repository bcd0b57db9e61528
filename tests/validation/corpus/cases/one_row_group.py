"""A Parquet file with one row group: one partition, whatever its size."""

import tempfile
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "trips.parquet")
        rows = np.random.default_rng(1).integers(0, 1000, (5_000_000, 8)).astype(float)
        pd.DataFrame(rows, columns=list("abcdefgh")).to_parquet(path, row_group_size=10_000_000)
        del rows
        with Client(
            n_workers=2, threads_per_worker=1, memory_limit="450MB", dashboard_address=":0"
        ):
            try:
                frame = dd.read_parquet(path)
                print(frame.map_partitions(lambda part: part.cumsum()).sum().compute().sum())
            except Exception as error:
                print(type(error).__name__)
