"""Reads of a service that fails now and then; retries= makes them again."""

import time

import numpy as np
from distributed import Client, get_worker


def fetch(number: int) -> np.ndarray:
    """Fail at the first attempt of each third number."""
    worker = get_worker()
    tried = worker.__dict__.setdefault("tried", set())
    time.sleep(0.1)
    if number % 3 == 0 and number not in tried:
        tried.add(number)
        raise ConnectionError(f"the service is busy: {number}")
    return np.random.default_rng(number).normal(size=(300, 300))


def solve(matrix: np.ndarray) -> float:
    return float(abs(np.linalg.eigvals(matrix)).max())


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        fetched = client.map(fetch, range(18), retries=4)
        print(max(client.gather(client.map(solve, fetched))))
