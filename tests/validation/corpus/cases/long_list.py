"""A long list that is an argument of each task, and so is part of each."""

import sys

import dask
from distributed import Client


def look_up(number: int, names: list[str]) -> int:
    return len(names[number])


if __name__ == "__main__":
    names = [f"station {number}" for number in range(60_000)]
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        given = dask.delayed(names, traverse=False) if "--remedy" in sys.argv else names
        print(sum(dask.compute(*[dask.delayed(look_up)(n, given) for n in range(60)])))
