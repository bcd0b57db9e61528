"""Workers whose jobs end at their walltime, one after the other; new ones take their place."""

import os
import signal
import sys
import threading
import time

from distributed import Client


def features(number: int) -> int:
    time.sleep(1)
    return number


def end_jobs(client: Client, over: threading.Event) -> None:
    while not over.wait(4.0) and "--remedy" not in sys.argv:
        pids = client.run(os.getpid)
        os.kill(min(pids.values()), signal.SIGKILL)  # the oldest


if __name__ == "__main__":
    over = threading.Event()
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        threading.Thread(target=end_jobs, args=(client, over), daemon=True).start()
        print(sum(client.gather(client.map(features, range(12)))))
        over.set()
