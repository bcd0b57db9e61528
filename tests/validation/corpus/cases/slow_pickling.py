"""Results of few bytes that take 0.1 s to serialise, each moved to another worker."""

import time

from distributed import Client


class Model:
    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self):
        time.sleep(0.1)
        return Model, (self.number,)


def fit(number: int) -> Model:
    return Model(number)


def predict(model: Model) -> int:
    return model.number


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        one, other = client.nthreads()
        models = client.map(fit, range(30), workers=[one])
        print(sum(client.gather(client.map(predict, models, workers=[other]))))
