"""Words of text files counted, by a bag: pure Python, two threads in one worker.

As advised, in processes of one thread each.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

import dask.bag as db
from distributed import Client, LocalCluster


def write_texts(directory: str) -> None:
    generator = random.Random(1)
    words = [
        "".join(generator.choices("abcdefghij", k=generator.randint(2, 7))) for _ in range(900)
    ]
    text = "\n".join(" ".join(generator.choices(words, k=12)) for _ in range(25_000))
    for number in range(16):
        Path(directory, f"page-{number:02}.txt").write_text(text)


def clean(line: str) -> list[str]:
    return [word.strip(".,").lower() for word in line.split() if len(word) > 2]


if __name__ == "__main__":
    shape = (
        {"n_workers": 2, "threads_per_worker": 1}
        if "--advised" in sys.argv
        else {"n_workers": 1, "threads_per_worker": 2}
    )
    with tempfile.TemporaryDirectory() as directory:
        write_texts(directory)
        with LocalCluster(dashboard_address=":0", **shape) as cluster, Client(cluster):
            begin = time.perf_counter()
            words = db.read_text(f"{directory}/*.txt").map(clean).flatten()
            print(words.frequencies(split_every=8).topk(5, key=1).compute())
            print(f"{time.perf_counter() - begin:.2f} seconds")
