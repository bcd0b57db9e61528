"""A pipeline with a restart of all workers between its two halves, by its user. Healthy."""

import dask
import dask.array as da
from distributed import Client


def half(seed: int) -> float:
    random = da.random.default_rng(seed)
    x = random.normal(size=(6000, 1500), chunks=(500, 1500))
    return float(da.linalg.norm(x.T @ x).compute())


if __name__ == "__main__":
    # LocalCluster gives up workers that do not return in 15 s, as on a busy machine.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"})
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(half(1))
        client.restart(timeout=120)
        print(half(2))
