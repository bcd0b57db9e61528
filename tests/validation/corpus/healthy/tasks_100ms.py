"""Two hundred tasks of 100 ms. Healthy."""

import numpy as np
from distributed import Client


def work(i):
    r = np.random.default_rng(i)
    s = 0.0
    while r.random() and s < 24:
        s += 1
        np.sort(r.random(60_000))
    return s


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as c:
        print(sum(c.gather(c.map(work, range(150)))))
