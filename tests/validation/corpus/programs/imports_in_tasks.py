"""Tasks that import a large library within their function, as the first ones on each worker."""

from distributed import Client


def fit(seed: int) -> float:
    import numpy as np
    from sklearn.ensemble import GradientBoostingRegressor

    table = np.random.default_rng(seed).normal(size=(400, 5))
    return float(
        GradientBoostingRegressor(n_estimators=10).fit(table, table[:, 0]).score(table, table[:, 0])
    )


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(min(client.gather(client.map(fit, range(40)))))
