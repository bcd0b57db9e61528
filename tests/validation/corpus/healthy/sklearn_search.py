"""A grid search through joblib. Healthy."""

import joblib
from distributed import Client
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

if __name__ == "__main__":
    X, y = make_classification(4000, 20, random_state=0)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        s = GridSearchCV(
            RandomForestClassifier(30, random_state=0),
            {"max_depth": [4, 6, 8, 10], "min_samples_leaf": [1, 5]},
            cv=3,
        )
        with joblib.parallel_backend("dask"):
            s.fit(X, y)
        print(s.best_score_)
