"""Workers that hold millions of objects, which the garbage collector goes through each time."""

import gc
import sys

from distributed import Client, wait


def load(number: int) -> list[list[int]]:
    return [[row, number] for row in range(700_000)]


def parse(number: int) -> int:
    return sum(len([[[row]] for row in range(30_000)]) for _ in range(12)) + number


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        tables = client.map(load, range(4))
        wait(tables)
        if "--remedy" in sys.argv:
            client.run(gc.freeze)
        print(sum(client.gather(client.map(parse, range(60)))))
