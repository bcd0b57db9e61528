"""dask.dataframe: each partition loads a model (once), for two results (together)."""

import pickle
import sys
import tempfile
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, get_worker
from sklearn.ensemble import RandomForestRegressor

REMEDIES = sys.argv[1:]


def load(path):
    return pickle.loads(Path(path).read_bytes())


def load_once(path):
    worker = get_worker()
    if not hasattr(worker, "model"):
        worker.model = load(path)
    return worker.model


def score(table, path, once):
    model = load_once(path) if once else load(path)
    return table.assign(score=model.predict(table[["a", "b", "c"]].to_numpy()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path, random = str(Path(directory, "model.pkl")), np.random.default_rng(0)
        X = random.random((3000, 3))
        forest = RandomForestRegressor(60, random_state=0).fit(X, X.sum(axis=1))
        Path(path).write_bytes(pickle.dumps(forest))
        table = pd.DataFrame(random.random((60_000, 3)), columns=list("abc"))
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            meta = table.assign(score=0.0)
            scored = dd.from_pandas(table, npartitions=24)
            scored = scored.map_partitions(score, path, "once" in REMEDIES, meta=meta)
            mean, high = scored["score"].mean(), (scored["score"] > 1.5).sum()
            if "together" in REMEDIES:
                mean, high = dask.compute(mean, high)
            else:
                mean, high = mean.compute(), high.compute()
            print(round(float(mean), 6), int(high))
