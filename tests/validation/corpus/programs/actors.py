"""A parameter server that is an actor, and tasks that compute gradients for it."""

import numpy as np
from distributed import Client, wait


class Parameters:
    """The weights, and the steps that were made with them."""

    def __init__(self, size: int) -> None:
        self.weights = np.zeros(size)

    def current(self) -> np.ndarray:
        return self.weights

    def step(self, gradient: np.ndarray) -> float:
        self.weights -= 0.1 * gradient
        return float(np.abs(gradient).max())


def gradient(seed: int, server: object) -> float:
    random = np.random.default_rng(seed)
    table = random.normal(size=(20_000, 60))
    target = table @ np.arange(60.0)
    worst = 0.0
    for _ in range(8):
        weights = server.current().result()
        worst = server.step(2 * table.T @ (table @ weights - target) / len(table)).result()
    return worst


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        server = client.submit(Parameters, 60, actor=True).result()
        for epoch in range(3):
            tasks = client.map(gradient, range(10 * epoch, 10 * epoch + 10), server=server)
            wait(tasks)
            print(max(client.gather(tasks)))
        print(server.current().result()[:4])
