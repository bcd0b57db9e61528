"""Two users of one cluster, the second a while after the first has finished. Healthy."""

import threading
import time

import dask.array as da
from distributed import Client, LocalCluster


def work(address: str, seed: int, rounds: int) -> None:
    with Client(address, set_as_default=False) as client:
        for number in range(rounds):
            random = da.random.default_rng(seed + number)
            x = random.normal(size=(2500, 2000), chunks=(500, 2000))
            print(seed, client.compute((x @ x.T).std()).result())


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        address = cluster.scheduler_address
        first = threading.Thread(target=work, args=(address, 10, 3))
        first.start()
        time.sleep(1)
        work(address, 20, 2)
        first.join()
        time.sleep(2)  # nobody has work for the cluster
        work(address, 30, 2)
