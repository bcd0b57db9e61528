"""Long tasks that all go to the worker that has their large input, while others idle."""

import time

import numpy as np
from distributed import Client


def simulate(number: int, table: np.ndarray) -> float:
    time.sleep(1.2 if number % 4 == 0 else 0.05)
    return float(table[number])


if __name__ == "__main__":
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=":0") as client:
        first = next(iter(client.nthreads()))
        table = client.scatter(np.arange(20_000_000.0), workers=[first])
        names = [f"simulate-{number}" for number in range(24)]
        long = [
            client.submit(simulate, number, table, key=name, workers=[first])
            for number, name in enumerate(names)
        ]
        print(sum(client.gather(long)))
