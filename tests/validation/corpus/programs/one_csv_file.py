"""Tasks that each read the same CSV file, and keep one group of its rows."""

import sys
import tempfile

import dask
import numpy as np
import pandas as pd
from distributed import Client


def group(path, number):
    frame = pd.read_csv(path)
    return frame[frame.station == number].drop(columns="station").std()


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as directory,
        Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"),
    ):
        path = f"{directory}/all.csv"
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(60_000, 10)), columns=[f"c{n}" for n in range(10)])
        frame.assign(station=rng.integers(0, 40, len(frame))).to_csv(path, index=False)
        if "--remedy" in sys.argv:
            frame = pd.read_csv(path).groupby("station").std()
            print(round(float(frame.sum().sum()), 3))
        else:
            parts = dask.compute(*[dask.delayed(group)(path, n) for n in range(40)])
            print(round(float(sum(map(sum, parts))), 3))
