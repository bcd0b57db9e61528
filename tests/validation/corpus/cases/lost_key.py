"""A client that waits for a result that the scheduler no longer knows."""

import time

from distributed import Client, Future, TimeoutError, wait


def work(number: int) -> int:
    time.sleep(0.05)
    return number


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        futures = client.map(work, range(20))
        wait(futures)
        name = futures[3].key
        print(sum(client.gather(futures)))
        futures.clear()
        client.sync(client.scheduler.identity)
        try:
            print(Future(name, client).result(timeout=12))
        except TimeoutError:
            print("no result")
