"""Tasks that leave memory behind in their process until all workers are paused."""

import contextlib
import sys
import time

import numpy as np
from distributed import Client, TimeoutError

KEPT: list[np.ndarray] = []


def convert(number: int) -> int:
    import __main__

    kept = __main__.__dict__.setdefault("LEAKED", [])
    kept.append(np.ones(4_000_000))
    if len(sys.argv) > 1 and sys.argv[1] == "--remedy":
        kept.clear()
    time.sleep(0.25)
    return number


if __name__ == "__main__":
    with (
        Client(
            n_workers=2, threads_per_worker=1, memory_limit="500MB", dashboard_address=":0"
        ) as client,
        contextlib.suppress(TimeoutError),
    ):
        print(client.submit(sum, client.map(convert, range(60))).result(timeout=15))
