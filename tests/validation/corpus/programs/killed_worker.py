"""A worker that is killed (SIGKILL) midway, as by the kernel for want of memory."""

import os
import signal

import numpy as np
from distributed import Client, wait


def load(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(400, 400))


def solve(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.eigvals(matrix)


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        loaded = client.map(load, range(24))
        solved = client.map(solve, loaded)
        wait(solved[:10])
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        print(max(abs(values).max() for values in client.gather(solved)))
