"""A compressed text file: gzip cannot be split, so it is one partition for one worker."""

import gzip
import sys
import tempfile
from pathlib import Path

import dask.bag as db
from distributed import Client


def score(line: str) -> int:
    return sum(ord(letter) * 31 % 7 for letter in line)


if __name__ == "__main__":
    files = 8 if "--remedy" in sys.argv else 1
    with tempfile.TemporaryDirectory() as place:
        for number in range(files):
            with gzip.open(Path(place) / f"{number}.txt.gz", "wt", 1) as file:
                file.writelines(f"{row} {row * 7} some text\n" for row in range(700_000 // files))
        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0"):
            print(db.read_text(f"{place}/*.gz").map(score).sum().compute())
