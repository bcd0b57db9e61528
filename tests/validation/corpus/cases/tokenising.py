"""A client that hashes a large object to name each of its tasks."""

from distributed import Client


def count(number: int, table: dict) -> int:
    return len(table) + number


if __name__ == "__main__":
    table = {f"key {number}": [number, str(number)] for number in range(60_000)}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(sum(client.gather([client.submit(count, n, table) for n in range(20)])))
