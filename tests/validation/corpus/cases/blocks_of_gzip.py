"""Tasks that each read a block of a gzip file, and decompress all before it to get there."""

import gzip
import sys
import tempfile
from pathlib import Path

from distributed import Client

BLOCK = 4_000_000


def count(path: str, number: int) -> int:
    with gzip.open(path) as file:
        file.seek(number * BLOCK)
        return file.read(BLOCK).count(b"7")


def count_file(path: str) -> int:
    with gzip.open(path) as file:
        return file.read().count(b"7")


if __name__ == "__main__":
    rows = b"".join(b"%d,%d\n" % (row, row * row) for row in range(6_000_000))
    with (
        tempfile.TemporaryDirectory() as place,
        Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client,
    ):
        if "--remedy" in sys.argv:
            paths = [f"{place}/{number}.gz" for number in range(len(rows) // BLOCK)]
            for number, path in enumerate(paths):
                Path(path).write_bytes(gzip.compress(rows[number * BLOCK :][:BLOCK], 1))
            print(sum(client.gather(client.map(count_file, paths))))
        else:
            Path(place, "all.gz").write_bytes(gzip.compress(rows, 1))
            blocks = range(len(rows) // BLOCK)
            print(sum(client.gather([client.submit(count, f"{place}/all.gz", n) for n in blocks])))
