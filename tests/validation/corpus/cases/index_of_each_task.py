"""Tasks that each read one large index file to find their few rows in it."""

import pickle
import sys
import tempfile
from pathlib import Path

from distributed import Client


def load(path: str) -> dict[int, str]:
    return pickle.loads(Path(path).read_bytes())


def find(path: str, number: int) -> int:
    return len(load(path)[number])


def find_all(path: str, numbers: range) -> list[int]:
    index = load(path)
    return [len(index[number]) for number in numbers]


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as place,
        Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client,
    ):
        path = f"{place}/index.pickle"
        Path(path).write_bytes(pickle.dumps({n: f"row group {n}" for n in range(600_000)}))
        if "--remedy" in sys.argv:
            print(len(client.gather([client.submit(find_all, path, range(60)) for _ in range(2)])))
        else:
            print(sum(client.gather([client.submit(find, path, n) for n in range(60)])))
