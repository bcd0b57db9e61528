"""Two workers of one thread each on two cores or more: nothing is wrong with that."""

import numpy as np
from distributed import Client


def solve(seed: int) -> float:
    values = np.random.default_rng(seed).normal(size=(300, 300))
    return float(abs(np.linalg.eigvals(values)).max())


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(max(client.gather(client.map(solve, range(60)))))
