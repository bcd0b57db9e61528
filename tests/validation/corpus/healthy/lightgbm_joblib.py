"""LightGBM models cross-validated through joblib. Healthy."""

import joblib
from distributed import Client
from lightgbm import LGBMRegressor
from sklearn.datasets import make_regression
from sklearn.model_selection import cross_val_score

if __name__ == "__main__":
    X, y = make_regression(20000, 30, random_state=0)
    model = LGBMRegressor(n_estimators=150, n_jobs=1, verbose=-1)
    with (
        Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"),
        joblib.parallel_backend("dask"),
    ):
        print(cross_val_score(model, X, y, cv=8).mean())
