"""A search that submits new candidates as results come, two at a time. Healthy.

The tasks are as many as the threads at any time, since each next candidate rests on what is known.
"""

import numpy as np
from distributed import Client, as_completed


def score(x: float, y: float) -> tuple[float, float, float]:
    points = np.random.default_rng(int(1e6 * abs(x + y))).normal(size=(1500, 300))
    loss = (x - 1) ** 2 + (y + 2) ** 2 + 1e-9 * np.linalg.svd(points, compute_uv=False)[0]
    return loss, x, y


if __name__ == "__main__":
    random = np.random.default_rng(1)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        first = [client.submit(score, *random.normal(0, 3, 2)) for _ in range(4)]
        best, done = (float("inf"), 0.0, 0.0), 0
        running = as_completed(first)
        for future in running:
            best, done = min(best, future.result()), done + 1
            if done < 37:
                x, y = np.array(best[1:]) + random.normal(0, 0.5, 2)
                running.add(client.submit(score, x, y))
        print(best)
