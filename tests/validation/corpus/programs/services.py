"""Calls of a slow service from one thread a worker; as advised, from many."""

import sys
import time

from distributed import Client


def call_service(number: int) -> int:
    time.sleep(0.15)
    return sum(i * i for i in range(number % 7 * 1000))


if __name__ == "__main__":
    threads = 8 if "--advised" in sys.argv else 1
    with Client(n_workers=2, threads_per_worker=threads, dashboard_address=":0") as client:
        begin = time.perf_counter()
        print(sum(client.gather(client.map(call_service, range(40)))))
        print(f"{time.perf_counter() - begin:.2f} seconds")
