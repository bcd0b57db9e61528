"""Each task reads a model (once), and waits for a service in the one thread (threads)."""

import functools
import pickle
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, get_worker

REMEDIES = sys.argv[1:]


def read(path):
    return pickle.loads(Path(path).read_bytes())


def model_of(path, once):
    if not once:
        return read(path)
    worker = get_worker()
    if not hasattr(worker, "model"):
        worker.model = functools.cache(read)
    return worker.model(path)


def predict(number, path, once):
    model = model_of(path, once)
    time.sleep(0.25)  # a request to a service
    return sum(model[key] for key in range(number, number + 10))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory, "model.pkl"))
        Path(path).write_bytes(pickle.dumps({key: float(key) for key in range(400_000)}))
        threads = 4 if "threads" in REMEDIES else 1
        with Client(n_workers=2, threads_per_worker=threads, dashboard_address=":0") as client:
            once = "once" in REMEDIES
            print(sum(client.gather(client.map(predict, range(50), path=path, once=once))))
