"""A graph that is built step by step from all before it, by thousands of small calls."""

import sys

import dask
from distributed import Client


def step(left: int, right: int) -> int:
    return (left + right) % 1000


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        values = [dask.delayed(number) for number in range(2)]
        lazy = dask.delayed(step, pure=False)
        for number in range(2000):
            values = [
                lazy(one, other) for one, other in zip(values, values[1:] + values[:1], strict=True)
            ]
            if "--remedy" in sys.argv and number % 100 == 99:
                values = list(dask.persist(*values))
        print(dask.compute(*values))
