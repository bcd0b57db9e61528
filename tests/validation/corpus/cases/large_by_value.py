"""A function that is sent by value with each task, as it holds a table of 150 kB."""

from functools import partial

from distributed import Client


def look_up(number: int, table: dict) -> int:
    return table[number % len(table)]


if __name__ == "__main__":
    table = {number: number * number for number in range(24_000)}
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        tasks = [client.submit(partial(look_up, table=table), n, pure=False) for n in range(150)]
        print(sum(client.gather(tasks)))
