"""Pure Python in four threads of one process, which take turns at the GIL."""

from distributed import Client


def score(number: int) -> int:
    total = 0
    for value in range(1_200_000):
        total += value % (number + 3)
    return total


if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=4, dashboard_address=":0") as client:
        print(sum(client.gather(client.map(score, range(60)))))
