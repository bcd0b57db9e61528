"""A client that submits one task, waits for it, and then submits the next."""

import time

from distributed import Client


def ask(number: int) -> int:
    time.sleep(0.15)
    return number + 1


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        number = 0
        for _ in range(30):
            number = client.submit(ask, number).result()
        print(number)
