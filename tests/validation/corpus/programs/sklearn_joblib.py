"""A grid search of scikit-learn, over joblib's Dask backend. Healthy."""

import joblib
from distributed import Client
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        samples, labels = make_classification(4_000, 20, n_informative=8, random_state=1)
        grid = {"max_depth": [4, 8, 12], "n_estimators": [20, 40]}
        search = GridSearchCV(RandomForestClassifier(random_state=1), grid, cv=3)
        with joblib.parallel_config("dask", scatter=[samples, labels]):
            search.fit(samples, labels)
        print(search.best_params_, search.best_score_)
