"""An error in one of many small tasks, which ends the program with a traceback."""

import numpy as np
from distributed import Client


def parse(number: int) -> np.ndarray:
    return np.arange(number, number + 5, dtype=float)


def invert(values: np.ndarray) -> float:
    if 170.0 in values:
        raise ValueError(f"cannot invert {values}")
    return float((1 / (values + 1)).sum())


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        parsed = client.map(parse, range(300))
        print(client.submit(sum, client.map(invert, parsed)).result())
