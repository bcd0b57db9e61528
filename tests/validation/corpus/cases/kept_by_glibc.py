"""Many small objects that are freed and stay with the allocator, as blocks between them live."""

import time

from distributed import Client


def parse(number: int) -> list[bytes]:
    rows = [bytes(200 + (number + i) % 300) for i in range(1_500_000)]
    return rows[::4000]


def count(rows: list[bytes]) -> int:
    return len(rows)


if __name__ == "__main__":
    with Client(
        n_workers=1, threads_per_worker=1, memory_limit="2GB", dashboard_address=":0"
    ) as client:
        kept = client.map(parse, range(6))
        print(sum(client.gather(client.map(count, kept))))
        time.sleep(5)
