"""Small pipelines with one known fault each.

They sleep unless the CPU matters, so that the faults also show on a busy machine. Tasks and client
measure whether the fault occurred, independently of the trace.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker, wait


@dataclass(frozen=True)
class Pipeline:
    """Pipeline with a fault, and its cluster."""

    #: Runs the pipeline, and returns whether the fault occurred.
    run: Callable[[Client], bool]
    #: Rules that name the fault.
    rules: tuple[str, ...]
    #: Function with the fault, if any.
    function: str | None = None


def nap(seconds: float, *inputs: object) -> float:
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin


def naps(client: Client, name: str, seconds: Sequence[float], inputs: Any = ()) -> list[Future]:
    """Submit tasks that sleep for these seconds, with priorities in this order."""
    given = [[x] for x in inputs] or [[] for _ in seconds]
    return [
        client.submit(nap, length, *needed, key=f"{name}-{number}", priority=-number)
        for number, (length, needed) in enumerate(zip(seconds, given, strict=True))
    ]


def slow_function(client: Client) -> bool:
    loaded = naps(client, "load", [0.02] * 20)
    changed = naps(client, "transform", [0.4] * 20, loaded)
    saved = naps(client, "save", [0.02] * 20, changed)
    client.gather(saved)
    slow, others = sum(client.gather(changed)), sum(client.gather([*loaded, *saved]))
    return slow > 2 * others


def make_partition(seconds: float, nbytes: int) -> np.ndarray[Any, Any]:
    time.sleep(seconds)
    return np.zeros(nbytes, dtype=np.uint8)


def use(seconds: float, partition: object) -> str:
    time.sleep(seconds)
    return str(get_worker().address)


def fat_partition(client: Client) -> bool:
    sizes = [1_000_000 if number == 5 else 25_000 for number in range(20)]
    parts = [
        client.submit(make_partition, size * 1.2e-6 + 0.02, size, key=f"load-{number}")
        for number, size in enumerate(sizes)
    ]
    cleaned = naps(client, "clean", [size * 0.6e-6 + 0.02 for size in sizes], parts)
    wait(cleaned)
    nbytes = sorted(client.nbytes(summary=False)[part.key] for part in parts)
    return nbytes[-1] > 10 * nbytes[-2]


def large_transfers(client: Client) -> bool:
    first, second = client.nthreads()
    options = {"workers": [first]}
    parts = [
        client.submit(make_partition, 0.0, 60_000_000, key=f"load-{n}", **options) for n in range(8)
    ]
    wait(parts)
    before = {address for addresses in client.who_has(parts).values() for address in addresses}
    options = {"workers": [second]}
    used = [
        client.submit(use, 0.01, part, key=f"use-{n}", **options) for n, part in enumerate(parts)
    ]
    return before == {first} and set(client.gather(used)) == {second}


def serial_chain(client: Client) -> bool:
    begin = time.perf_counter()
    loaded = naps(client, "load", [0.05] * 12)
    chain = [client.submit(nap, 0.3, *loaded, key="step-0")]
    for number in range(1, 10):
        chain.append(client.submit(nap, 0.3, chain[-1], key=f"step-{number}"))
    alone = sum(client.gather(chain))
    return alone > 0.5 * (time.perf_counter() - begin)


def gaps_of_the_client(client: Client) -> bool:
    begin, waited = time.perf_counter(), 0.0
    for number in range(4):
        wait(naps(client, f"part{number}", [0.05] * 8))
        if number < 3:
            waited += nap(0.8)
    return waited > 0.3 * (time.perf_counter() - begin)


def work(seconds: float) -> tuple[bool, float]:
    """Sleep, three times as long on the first worker, and return whether it is that worker."""
    is_slow = get_worker().name == 0
    return is_slow, nap(3 * seconds if is_slow else seconds)


def slow_worker(client: Client) -> bool:
    done = client.gather([client.submit(work, 0.05, key=f"work-{n}") for n in range(64)])
    slow, others = ([taken for there, taken in done if there is at] for at in (True, False))
    return np.median(slow) > 2 * np.median(others)


FAULTS: dict[str, Pipeline] = {
    "a slow function": Pipeline(slow_function, ("dominant-function", "blocked-tasks"), "transform"),
    "a fat partition": Pipeline(fat_partition, ("data-skew",), "load"),
    "large transfers": Pipeline(large_transfers, ("transfer-bound",), "load"),
    "a serial chain": Pipeline(serial_chain, ("serial-chain",), "step"),
    "gaps of the client": Pipeline(gaps_of_the_client, ("client-bound",)),
    "a slow worker": Pipeline(slow_worker, ("slow-worker",), "work"),
}
