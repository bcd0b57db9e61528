"""A large model that is part of each task; as advised, scattered once."""

import sys
import time

import numpy as np
from distributed import Client


def predict(number: int, model: dict) -> float:
    x = np.random.default_rng(number).normal(size=200)
    for weights in model["layers"]:
        x = np.tanh(weights[:200, :200] @ x)
    return float(x.sum())


if __name__ == "__main__":
    random = np.random.default_rng(1)
    model = {
        "layers": [random.normal(size=(400, 400)) for _ in range(8)],
        "vocabulary": {str(number): number for number in range(60_000)},
    }
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        begin = time.perf_counter()
        if "--advised" in sys.argv:
            model = client.scatter(model, broadcast=True)
            print(sum(client.gather(client.map(predict, range(40), model=model))))
        else:
            tasks = [client.submit(predict, number, model) for number in range(40)]
            print(sum(client.gather(tasks)))
        print(f"{time.perf_counter() - begin:.2f} seconds")
