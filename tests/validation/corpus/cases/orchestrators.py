"""Tasks that start others and wait for these, each in a thread that could run one."""

import sys
import time

from distributed import Client, get_client, secede, wait


def train(number: int) -> int:
    time.sleep(0.25)
    return number


def orchestrate(number: int) -> int:
    futures = get_client().map(train, range(20 * number, 20 * number + 20))
    if "--remedy" in sys.argv:
        secede()
    wait(futures)
    return len(futures)


if __name__ == "__main__":
    with Client(n_workers=4, threads_per_worker=1, dashboard_address=":0") as client:
        print(sum(client.gather(client.map(orchestrate, range(3)))))
