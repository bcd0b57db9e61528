"""Tasks whose function needs large libraries, which each worker imports as the first one comes."""

import numpy as np
import scipy.signal
import sklearn.ensemble
import sklearn.linear_model
import xarray as xr
from distributed import Client


def fit(seed: int) -> float:
    random = np.random.default_rng(seed)
    table = xr.DataArray(random.normal(size=(20_000, 10)), dims=("row", "column"))
    smooth = scipy.signal.detrend(table.values, axis=0)
    model = sklearn.linear_model.LinearRegression().fit(smooth, smooth.sum(axis=1))
    return float(model.score(smooth, smooth.sum(axis=1)))


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(min(client.gather(client.map(fit, range(60)))))
