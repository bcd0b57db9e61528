"""A cluster that scales itself, from no worker to two and back. Healthy."""

import time

import numpy as np
from distributed import Client, LocalCluster


def spectrum(seed: int) -> float:
    values = np.random.default_rng(seed).normal(size=(500, 500))
    return float(abs(np.linalg.eigvals(values)).max())


if __name__ == "__main__":
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=3)
        with Client(cluster) as client:
            print(max(client.gather(client.map(spectrum, range(16)))))
            deadline = time.monotonic() + 30
            while client.nthreads() and time.monotonic() < deadline:
                time.sleep(0.1)
            print(max(client.gather(client.map(spectrum, range(16, 28)))))
