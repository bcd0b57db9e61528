"""A search that dispatches one fit at a time (dispatch), with a transformer in Python (columns)."""

import sys

import joblib
import numpy as np
from distributed import Client
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

REMEDIES = sys.argv[1:]


def by_value(table):
    return np.array([[np.log1p(abs(x)) * (1 if x > 0 else -1) for x in row] for row in table])


def in_columns(table):
    return np.log1p(np.abs(table)) * np.where(table > 0, 1, -1)


if __name__ == "__main__":
    X, y = make_classification(12_000, 20, random_state=0)
    transform = FunctionTransformer(in_columns if "columns" in REMEDIES else by_value)
    model = make_pipeline(transform, LogisticRegression(max_iter=300))
    grid = {"logisticregression__C": [0.01, 0.1, 1, 10, 100, 1000]}
    dispatch = {} if "dispatch" in REMEDIES else {"pre_dispatch": 1}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        search = GridSearchCV(model, grid, cv=4, **dispatch)
        with joblib.parallel_backend("dask"):
            search.fit(X, y)
        print(round(search.best_score_, 4))
