"""Blocks that are computed while a lock of the whole cluster is held, for the file they go to."""

import sys
import tempfile
import time

from distributed import Client, Lock


def write(path: str, number: int) -> int:
    if "--remedy" in sys.argv:
        time.sleep(0.2)
    with Lock("output.nc"), open(path, "a") as file:
        if "--remedy" not in sys.argv:
            time.sleep(0.2)
        return file.write(f"{number}\n")


if __name__ == "__main__":
    with (
        tempfile.NamedTemporaryFile() as file,
        Client(n_workers=2, threads_per_worker=2, dashboard_address=":0") as client,
    ):
        print(sum(client.gather([client.submit(write, file.name, n) for n in range(40)])))
