"""An adaptive cluster that removes its workers while the client works, with results on them."""

import sys
import time

from distributed import Client, LocalCluster


def load(number: int) -> int:
    time.sleep(0.2)
    return number


def use(value: int, number: int) -> int:
    time.sleep(0.02)
    return value + number


if __name__ == "__main__":
    least = 2 if "--remedy" in sys.argv else 0
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=least, maximum=2, interval="200ms", wait_count=2)
        with Client(cluster) as client:
            total = 0
            for number in range(4):
                total += sum(client.gather(client.map(load, range(10 * number, 10 * number + 10))))
                time.sleep(1.5)
            print(total)
