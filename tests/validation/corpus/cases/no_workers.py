"""A cluster that has no worker until one comes late; its tasks wait for a service."""

import threading
import time

from distributed import Client, LocalCluster


def ask(number: int) -> int:
    time.sleep(0.3)
    return number


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        threading.Timer(5.0, cluster.scale, [1]).start()
        print(sum(client.gather(client.map(ask, range(6)))))
