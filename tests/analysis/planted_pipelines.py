"""Small pipelines with one known fault each, and healthy ones.

They sleep where it is not the CPU that matters, so that a machine with other work shows them as
well. Each tells by figures of its own, measured by its tasks and its client, that the fault was
there: nothing of that comes from a trace.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker, wait


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, and what it takes to run it."""

    #: Runs it; gives whether the fault was there.
    run: Callable[[Client, Path], bool]
    #: The rules that name the fault.
    rules: tuple[str, ...] = ()
    #: Options of the cluster besides two workers of two threads.
    cluster: dict[str, Any] = field(default_factory=dict)
    #: The function that is at fault, if it is one.
    function: str | None = None


def nap(seconds: float, *inputs: object) -> float:
    """Sleep; gives how long it took."""
    begin = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begin


def naps(
    client: Client, name: str, seconds: Sequence[float], inputs: Sequence[Any] | None = None
) -> list[Future]:
    """Submit a sleeping task for each of these seconds, in this order of priority."""
    given = [[x] for x in inputs] if inputs is not None else [[] for _ in seconds]
    return [
        client.submit(nap, length, *own, key=f"{name}-{number}", priority=-number)
        for number, (length, own) in enumerate(zip(seconds, given, strict=True))
    ]


# --- faults --------------------------------------------------------------------------------------


def slow_function(client: Client, place: Path) -> bool:
    loaded = naps(client, "load", [0.02] * 20)
    changed = naps(client, "transform", [0.4] * 20, loaded)
    saved = naps(client, "save", [0.02] * 20, changed)
    client.gather(saved)
    slow, others = sum(client.gather(changed)), sum(client.gather([*loaded, *saved]))
    return slow > 2 * others


def make_partition(seconds: float, nbytes: int) -> np.ndarray[Any, Any]:
    time.sleep(seconds)
    return np.zeros(nbytes, dtype=np.uint8)


def make_noise(seconds: float, megabytes: int) -> np.ndarray[Any, Any]:
    """Make what no compression makes smaller, with little use of the CPU."""
    time.sleep(seconds)
    noise = np.random.default_rng(0).bytes(1_000_000)
    return np.tile(np.frombuffer(noise, dtype=np.uint8), megabytes)


def use(seconds: float, partition: object) -> str:
    """Sleep; gives the address of the worker."""
    time.sleep(seconds)
    return str(get_worker().address)


def fat_partition(client: Client, place: Path) -> bool:
    sizes = [1_000_000 if number == 5 else 25_000 for number in range(20)]
    parts = [
        client.submit(make_partition, size * 1.2e-6 + 0.02, size, key=f"load-{number}")
        for number, size in enumerate(sizes)
    ]
    cleaned = naps(client, "clean", [size * 0.6e-6 + 0.02 for size in sizes], parts)
    wait(cleaned)
    nbytes = sorted(client.nbytes(summary=False)[part.key] for part in parts)
    return nbytes[-1] > 10 * nbytes[-2]


def large_transfers(client: Client, place: Path) -> bool:
    first, second = client.nthreads()
    parts = [
        client.submit(make_partition, 0.0, 60_000_000, key=f"load-{n}", workers=[first])
        for n in range(8)
    ]
    wait(parts)
    before = {address for addresses in client.who_has(parts).values() for address in addresses}
    used = [
        client.submit(use, 0.01, part, key=f"use-{n}", workers=[second])
        for n, part in enumerate(parts)
    ]
    return before == {first} and set(client.gather(used)) == {second}


def serial_chain(client: Client, place: Path) -> bool:
    begin = time.perf_counter()
    loaded = naps(client, "load", [0.05] * 12)
    chain = [client.submit(nap, 0.3, *loaded, key="step-0")]
    for number in range(1, 10):
        chain.append(client.submit(nap, 0.3, chain[-1], key=f"step-{number}"))
    alone = sum(client.gather(chain))
    return alone > 0.5 * (time.perf_counter() - begin)


def tiny_tasks(client: Client, place: Path, count: int = 2000) -> bool:
    begin = time.perf_counter()
    wait(client.map(abs, range(count), key="count"))
    return (time.perf_counter() - begin) / count < 0.05


def spilling(client: Client, place: Path) -> bool:
    # Of two names: where disks are fast, one function that makes it all takes most of the time.
    keys = [f"{name}-{n}" for n in range(12) for name in ("load", "read")]
    parts = [client.submit(make_noise, 0.03, 24, key=key, pure=False) for key in keys]
    wait(parts)
    spilled = client.run(lambda dask_worker: dask_worker.data.spilled_total.disk)
    wait(naps(client, "use", [0.02] * 24, parts))
    return sum(spilled.values()) > 100_000_000


def gaps_of_the_client(client: Client, place: Path) -> bool:
    begin, waited = time.perf_counter(), 0.0
    for number in range(4):
        wait(naps(client, f"part{number}", [0.05] * 8))
        if number < 3:
            waited += nap(0.8)
    return waited > 0.3 * (time.perf_counter() - begin)


def spin(count: int) -> float:
    begin, total = time.perf_counter(), 0
    for number in range(count):
        total += number * number
    return time.perf_counter() - begin


def pure_python_in_threads(client: Client, place: Path) -> bool:
    used = client.run(time.process_time)
    begin = time.perf_counter()
    spent = sum(client.gather(client.map(spin, [1_500_000] * 16, key="loop", pure=False)))
    wall = time.perf_counter() - begin
    after = client.run(time.process_time)
    cores = sum(after[worker] - used[worker] for worker in after) / wall
    return spent > 2 * wall and cores < 1.5


def sleeps(client: Client, place: Path) -> bool:
    begin = time.process_time(), time.perf_counter()
    asked = naps(client, "ask", [0.15] * 24)
    return min(client.gather(asked)) >= 0.14 and time.perf_counter() > begin[1]


def fetch(place: str, number: int) -> int:
    time.sleep(0.05)
    with open(os.path.join(place, "attempts"), "a") as file:
        file.write(f"{number}\n")
    seen = os.path.join(place, f"seen-{number}")
    if number % 2 == 0 and not os.path.exists(seen):
        open(seen, "w").close()
        raise ConnectionError(f"no answer to {number}")
    return number


def failing_tasks(client: Client, place: Path) -> bool:
    place.mkdir()
    futures = [
        client.submit(fetch, str(place), number, key=f"fetch-{number}", retries=2)
        for number in range(40)
    ]
    assert client.gather(futures) == list(range(40))
    return len((place / "attempts").read_text().split()) == 60


def slowing_over_time(client: Client, place: Path) -> bool:
    stored = naps(client, "store", [0.02 + 0.01 * number for number in range(40)])
    seconds = client.gather(stored)
    return sum(seconds[-13:]) > 2 * sum(seconds[:13])


def work(seconds: float) -> tuple[Any, float]:
    name = get_worker().name
    return name, nap(3 * seconds if name == 0 else seconds)


def slow_worker(client: Client, place: Path) -> bool:
    done = client.gather([client.submit(work, 0.05, key=f"work-{n}") for n in range(64)])
    slow = [seconds for name, seconds in done if name == 0]
    others = [seconds for name, seconds in done if name != 0]
    return np.median(slow) > 2 * np.median(others)


FAULTS: dict[str, Pipeline] = {
    "a slow function": Pipeline(
        slow_function, ("dominant-function", "blocked-tasks"), function="transform"
    ),
    "a fat partition": Pipeline(fat_partition, ("data-skew",), function="load"),
    "large transfers": Pipeline(large_transfers, ("transfer-bound",), function="load"),
    "a serial chain": Pipeline(serial_chain, ("serial-chain",), function="step"),
    "tiny tasks": Pipeline(tiny_tasks, ("tasks-too-small",), function="count"),
    "spilling": Pipeline(
        spilling, ("spilling",), {"memory_limit": "400MB", "threads_per_worker": 1}
    ),
    "gaps of the client": Pipeline(gaps_of_the_client, ("client-bound",)),
    "pure Python in four threads": Pipeline(
        pure_python_in_threads,
        ("gil-contention",),
        {"n_workers": 1, "threads_per_worker": 4},
        function="loop",
    ),
    "sleeps": Pipeline(sleeps, ("blocked-tasks",), function="ask"),
    "failing tasks": Pipeline(failing_tasks, ("retried-tasks",), function="fetch"),
    "slowing over time": Pipeline(slowing_over_time, ("slowing-functions",), function="store"),
    "a slow worker": Pipeline(slow_worker, ("slow-worker",), function="work"),
}

# --- healthy pipelines ---------------------------------------------------------------------------


def three_stages(client: Client, place: Path) -> bool:
    loaded = naps(client, "load", [0.03] * 24)
    cleaned = naps(client, "clean", [0.04] * 24, loaded)
    wait(naps(client, "save", [0.03] * 24, cleaned))
    return True


def tree(client: Client, place: Path) -> bool:
    level = naps(client, "leaf", [0.05] * 64)
    while len(level) > 1:
        pairs = [level[place : place + 2] for place in range(0, len(level), 2)]
        level = naps(client, f"join{len(pairs)}", [0.01] * len(pairs), pairs)
    wait(level)
    return True


def two_graphs(client: Client, place: Path) -> bool:
    for number in range(2):
        wait(naps(client, f"pass{number}", [0.04] * 40))
    return True


HEALTHY = {
    "three stages": Pipeline(three_stages),
    "a tree": Pipeline(tree),
    "two graphs": Pipeline(two_graphs),
}
