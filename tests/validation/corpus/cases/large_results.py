"""A client that takes 600 MB of results."""

import numpy as np
from distributed import Client


def make(seed: int) -> np.ndarray:
    return np.full(3_750_000, float(seed))


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(sum(len(part) for part in client.gather(client.map(make, range(20)))))
