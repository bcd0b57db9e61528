"""Boosted trees over both workers, by LightGBM's Dask interface: two long tasks that train."""

import dask.array as da
from distributed import Client
from lightgbm import DaskLGBMRegressor

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        random = da.random.default_rng(1)
        table = random.normal(size=(100_000, 20), chunks=(12_500, 20))
        noise = random.normal(0, 0.1, size=100_000, chunks=12_500)
        target = table[:, 0] * 3 + table[:, 1] ** 2 + noise
        table, target = client.persist([table, target])
        model = DaskLGBMRegressor(n_estimators=60, verbose=-1, client=client)
        model.fit(table, target)
        error = ((model.predict(table) - target) ** 2).mean().compute()
        print(float(error))
