"""Programs whose workers die of want of memory, each with the function that takes it.

``python tests/memory_culprits.py [NAME ...]`` runs them and prints what is said of each.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster, wait

import dasfprof

LIMIT = 500e6
MB = 1_000_000
#: A task is given up with the second worker that died of it; Dask neither spills
#: nor pauses workers, which would then wait for ever.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 0,
}


@dataclass(frozen=True)
class Culprit:
    """A program, and what may be said of it."""

    submit: Callable[[Client], Any]
    #: The function that takes the memory; None: nothing can tell.
    function: str | None
    #: Whether it may be left open.
    may_be_open: bool = False
    workers: int = 2


def nap(number: int, seconds: float = 0.3) -> int:
    time.sleep(seconds)
    return number


def small(number: int) -> float:
    held = np.ones(20 * MB // 8)
    time.sleep(0.4)
    return float(held.sum()) + number


def swell(number: int, megabytes: int = 800) -> int:
    """Take memory by and by."""
    held = []
    for _ in range(megabytes // 20):
        held.append(np.ones(20 * MB // 8))
        time.sleep(0.15)
    return len(held) + number


def swell_too(number: int) -> int:
    return swell(number)


def burst(number: int) -> float:
    """Take memory at once."""
    time.sleep(0.1)
    return float(np.ones(800 * MB // 8).sum()) + number


def middling(number: int) -> float:
    """Take what fits once, and not twice, into a worker."""
    held = []
    for _ in range(12):
        held.append(np.ones(20 * MB // 8))
        time.sleep(0.15)
    return float(held[0][0]) + number


def load(number: int) -> np.ndarray:
    time.sleep(0.2)
    return np.full(60 * MB // 8, float(number))


def total(parts: list[np.ndarray]) -> float:
    """Put together what came, and hold it twice."""
    time.sleep(1.5)
    whole = np.concatenate(parts)
    again = [whole + n for n in range(3)]
    time.sleep(1.5)
    return float(sum(part[0] for part in again))


KEPT: list[Any] = []


def leave_behind(number: int) -> int:
    KEPT.append(np.ones(30 * MB // 8))
    time.sleep(0.3)
    return number


def unpack(packed: bytes, times: int) -> int:
    """Unpack some by some what is far larger."""
    parts = []
    for _ in range(times):
        parts.append(zlib.decompress(packed))
        time.sleep(0.15)
    return sum(map(len, parts))


def join_strings(number: int) -> int:
    text = [str(number)]
    while len(text) < 60 * MB:
        text += [f"{n}" for n in range(1_000_000)]
        time.sleep(0.02)
    return len(",".join(text))


def beside(client: Client, *culprits: Any, innocent: Any = small) -> Any:
    """Submit culprits while others run all the time."""
    wait(client.map(innocent, range(16), pure=False))
    return [*culprits, *client.map(innocent, range(60), pure=False)]


def swell_beside(client: Client) -> Any:
    return beside(client, client.submit(swell, 0))


def swell_beside_naps(client: Client) -> Any:
    return beside(client, client.submit(swell, 0), innocent=nap)


def burst_alone(client: Client) -> Any:
    return client.map(burst, range(2), pure=False)


def swell_alone(client: Client) -> Any:
    return client.map(swell, range(4), pure=False)


def burst_beside(client: Client) -> Any:
    return beside(client, client.submit(burst, 0))


def two_at_a_time(client: Client) -> Any:
    for number in range(4):
        client.submit(middling, number, pure=False, workers=[number % 2]).result()
    return client.map(middling, range(8), pure=False)


def results_kept(client: Client) -> Any:
    return client.map(load, range(30), pure=False)


def put_together(client: Client) -> Any:
    parts = client.map(load, range(2), pure=False)
    wait(parts)
    return client.submit(total, parts)


def left_behind(client: Client) -> Any:
    return client.map(leave_behind, range(100), pure=False)


def two_swell(client: Client) -> Any:
    return beside(client, client.submit(swell, 0), client.submit(swell_too, 0))


def unpack_beside(client: Client) -> Any:
    packed = zlib.compress(bytes(30 * MB))
    return beside(client, client.submit(unpack, packed, 60))


def once_larger(client: Client) -> Any:
    wait(client.map(swell, range(6), megabytes=20, pure=False))
    return beside(client, client.submit(swell, 0, megabytes=800))


def strings_beside(client: Client) -> Any:
    return beside(client, client.submit(join_strings, 0), innocent=nap)


CULPRITS = {
    "swell beside small": Culprit(swell_beside, "swell"),
    "swell beside naps": Culprit(swell_beside_naps, "swell"),
    "swell alone": Culprit(swell_alone, "swell"),
    "burst alone": Culprit(burst_alone, "burst"),
    "burst beside small": Culprit(burst_beside, "burst", may_be_open=True),
    "two at a time": Culprit(two_at_a_time, "middling"),
    "results kept": Culprit(results_kept, "load"),
    "put together": Culprit(put_together, "total", may_be_open=True),
    "left behind": Culprit(left_behind, "leave_behind"),
    "two swell": Culprit(two_swell, None, workers=1),
    "unpack beside small": Culprit(unpack_beside, "unpack"),
    "once larger": Culprit(once_larger, "swell", may_be_open=True),
    "strings beside naps": Culprit(strings_beside, "join_strings", may_be_open=True),
}


def run(name: str, directory: Path) -> dasfprof.TraceAnalyser:
    """Record a program until its culprit was given up; return what analyses the run."""
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=CULPRITS[name].workers,
            threads_per_worker=2,
            memory_limit=LIMIT,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, name="run", directory=directory) as recorded,
    ):
        futures = CULPRITS[name].submit(client)
        for future in futures if isinstance(futures, list) else [futures]:
            if future.exception(timeout=240) is not None:
                break
        del futures, future
    return recorded.analyser()


def main(names: list[str]) -> None:
    """Print a row for each death of each program."""
    for name in names or CULPRITS:
        with tempfile.TemporaryDirectory() as directory:
            table = run(name, Path(directory)).died_of_memory()
        print(f"{name}: true is {CULPRITS[name].function}", flush=True)
        for row in table.to_dict("records"):
            facts = (row["Suspect"], row["Certainty"], row["Because"], row["Tasks"])
            print(f"    {row['Left (s)']:.1f} s: {facts}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
