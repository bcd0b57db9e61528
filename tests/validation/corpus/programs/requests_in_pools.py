"""Tasks that make requests in a pool of two threads."""

import time
from concurrent.futures import ThreadPoolExecutor

from distributed import Client


def request(number):
    time.sleep(0.1)
    return number


def batch(first):
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(request, range(first, first + 20)))


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(sum(client.gather(client.map(batch, range(0, 240, 20)))))
