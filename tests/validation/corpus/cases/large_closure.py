"""A function that closes over an array of 8 MB, sent with each task."""

import numpy as np
from distributed import Client


def make(weights: np.ndarray):
    def score(number: int) -> float:
        return float(weights[number] * 2)

    return score


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        tasks = [client.submit(make(np.random.random(1_000_000)), n) for n in range(60)]
        print(sum(client.gather(tasks)))
