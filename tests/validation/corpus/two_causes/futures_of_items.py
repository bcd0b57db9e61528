"""Futures: a task per item (batches), and results asked for one by one (together)."""

import sys

from distributed import Client

REMEDIES = sys.argv[1:]


def score(number):
    return sum((number * step) % 101 for step in range(500))


def score_all(numbers):
    return [score(number) for number in numbers]


if __name__ == "__main__":
    count = 3000
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        if "batches" in REMEDIES:
            inputs = [range(start, count, 20) for start in range(20)]
            futures = client.map(score_all, inputs)
        else:
            futures = client.map(score, range(count))
        if "together" in REMEDIES:
            results = client.gather(futures)
        else:
            results = [future.result() for future in futures]
        if "batches" in REMEDIES:
            results = [each for part in results for each in part]
        print(sum(results))
