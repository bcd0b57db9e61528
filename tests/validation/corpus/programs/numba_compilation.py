"""A function that Numba compiles at its first call, on each worker."""

import numba
import numpy as np
from distributed import Client


@numba.njit(parallel=False)
def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    found = np.empty(len(points))
    for row in range(len(points)):
        least = np.inf
        for centre in centres:
            least = min(least, np.sqrt(((points[row] - centre) ** 2).sum()))
        found[row] = least
    return np.sort(found)


def nearest(seed: int) -> float:
    random = np.random.default_rng(seed)
    return float(distances(random.normal(size=(4000, 3)), random.normal(size=(20, 3)))[0])


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(min(client.gather(client.map(nearest, range(60)))))
