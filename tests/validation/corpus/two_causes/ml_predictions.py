"""dask-ml: predictions in small chunks (chunks), of data loaded for each of two (together)."""

import sys

import dask
import dask.array as da
import numpy as np
from dask_ml.wrappers import ParallelPostFit
from distributed import Client
from sklearn.ensemble import RandomForestClassifier

REMEDIES = sys.argv[1:]


def load(block):
    loaded = block
    for _ in range(60):
        loaded = np.tanh(loaded) + 0.5 * block
    return loaded


if __name__ == "__main__":
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, 10))
    forest = RandomForestClassifier(20, max_depth=4, random_state=0).fit(X, X[:, 0] > 0.2)
    model = ParallelPostFit(forest)
    rows = 30_000 if "chunks" in REMEDIES else 1500
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        source = da.ones((200_000, 10), chunks=(rows, 10)) * np.linspace(-1, 1, 10)
        data = source.map_blocks(load)
        labels, chances = model.predict(data).sum(), model.predict_proba(data).mean()
        if "together" in REMEDIES:
            labels, chances = dask.compute(labels, chances)
        else:
            labels, chances = labels.compute(), chances.compute()
        print(int(labels), round(float(chances), 6))
