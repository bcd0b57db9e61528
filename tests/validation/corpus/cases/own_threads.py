"""Tasks that hand their work to a pool of threads of their own."""

import zlib
from concurrent.futures import ThreadPoolExecutor

from distributed import Client


def inner(blocks: int) -> int:
    data = bytes(range(256)) * 16_000
    with ThreadPoolExecutor(2) as pool:
        return sum(map(len, pool.map(zlib.compress, [data] * blocks, [9] * blocks)))


if __name__ == "__main__":
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        print(sum(client.gather([client.submit(inner, 24, pure=False) for _ in range(12)])))
