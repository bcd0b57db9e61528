"""Tasks that ask something which answers one at a time: here a file lock, for a service."""

import fcntl
import tempfile
import time

from distributed import Client


def ask(number: int, path: str) -> int:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.12)
    return number


if __name__ == "__main__":
    with (
        tempfile.NamedTemporaryFile() as file,
        Client(n_workers=2, threads_per_worker=2, dashboard_address=":0") as client,
    ):
        print(sum(client.gather(client.map(ask, range(40), path=file.name))))
