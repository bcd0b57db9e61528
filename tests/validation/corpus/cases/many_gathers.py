"""A client that asks for each of many results by itself."""

from distributed import Client, wait


def work(number: int) -> int:
    return sum(range(500_000)) + number


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        futures = client.map(work, range(800))
        wait(futures)
        print(sum(future.result() for future in futures))
