"""A lock whose holder's process dies: all others wait for it."""

import contextlib
import os
import signal
import time

import dask
from distributed import Client, Lock, TimeoutError


def write(number: int) -> int:
    lock = Lock("file")
    lock.acquire()
    if number == 0:
        time.sleep(2.5)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    lock.release()
    return number


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with Client(n_workers=3, threads_per_worker=1, dashboard_address=":0") as client:
        first = client.submit(write, 0)
        time.sleep(0.5)
        others = client.map(write, range(1, 9))
        with contextlib.suppress(TimeoutError):
            client.gather(others, errors="skip") if first.exception(timeout=15) is None else None
            others[0].result(timeout=10)
