"""A sort that divides itself into tasks from within tasks, by worker_client. Healthy."""

import numpy as np
from distributed import Client, worker_client


def sorted_parts(values: np.ndarray) -> np.ndarray:
    if len(values) <= 400_000:
        for _ in range(6):
            result = np.sort(values)
        return result
    pivot = np.median(values[:1001])
    with worker_client() as client:
        low = client.submit(sorted_parts, values[values < pivot])
        high = client.submit(sorted_parts, values[values >= pivot])
        return np.concatenate(client.gather([low, high]))


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        values = client.submit(np.random.default_rng(1).normal, size=6_000_000)
        print(client.submit(sorted_parts, values).result()[:3])
