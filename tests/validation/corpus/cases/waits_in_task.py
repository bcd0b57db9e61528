"""A task that takes its worker's only thread while it waits for tasks of its own."""

import contextlib
import time

from distributed import Client, TimeoutError, as_completed, get_client


def plane(number: int) -> int:
    time.sleep(0.1)
    return number


def products(count: int) -> int:
    futures = get_client().map(plane, range(count), pure=False)
    return sum(future.result() for future in as_completed(futures))


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        whole = client.map(products, [10, 11])
        with contextlib.suppress(TimeoutError):
            print(client.submit(sum, whole).result(timeout=10))
