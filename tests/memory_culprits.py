"""Programs whose workers run out of memory, each with the function that takes the memory.

``python tests/memory_culprits.py [NAME ...]`` runs the programs and prints the reported suspects.
"""

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
#: Dask's settings: a task fails when two workers have died while running it, and workers neither
#: spill nor pause, since a paused worker would wait forever.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 0,
}


@dataclass(frozen=True)
class Culprit:
    submit: Callable[[Client], Any]
    #: Name of the function that takes the memory, or None if nothing can show it.
    function: str | None
    #: Whether the analysis may leave the suspect open.
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
    held = []
    for _ in range(megabytes // 20):
        held.append(np.ones(20 * MB // 8))
        time.sleep(0.15)
    return len(held) + number


def swell_too(number: int) -> int:
    return swell(number)


def burst(number: int) -> float:
    time.sleep(0.1)
    return float(np.ones(800 * MB // 8).sum()) + number


def middling(number: int) -> float:
    """Take memory that fits into a worker once but not twice."""
    held = []
    for _ in range(12):
        held.append(np.ones(20 * MB // 8))
        time.sleep(0.15)
    return float(held[0][0]) + number


def load(number: int) -> np.ndarray:
    time.sleep(0.2)
    return np.full(60 * MB // 8, float(number))


def total(parts: list[np.ndarray]) -> float:
    """Concatenate the inputs, and hold the result twice."""
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
    """Decompress a value in steps to far more memory."""
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


def with_innocent(client: Client, *culprits: Any, innocent: Any = small) -> Any:
    wait(client.map(innocent, range(16), pure=False))
    return [*culprits, *client.map(innocent, range(60), pure=False)]


def two_at_a_time(client: Client) -> Any:
    for number in range(4):
        client.submit(middling, number, pure=False, workers=[number % 2]).result()
    return client.map(middling, range(8), pure=False)


def put_together(client: Client) -> Any:
    parts = client.map(load, range(2), pure=False)
    wait(parts)
    return client.submit(total, parts)


def once_larger(client: Client) -> Any:
    wait(client.map(swell, range(6), megabytes=20, pure=False))
    return with_innocent(client, client.submit(swell, 0, megabytes=800))


def repeated(function: Callable[..., Any], count: int) -> Callable[[Client], Any]:
    return lambda client: client.map(function, range(count), pure=False)


def among(*functions: Callable[..., Any], innocent: Any = small) -> Callable[[Client], Any]:
    """Return a function that submits a task of each function while other tasks run all the time."""
    return lambda client: with_innocent(
        client, *(client.submit(function, 0) for function in functions), innocent=innocent
    )


def unpack_among(client: Client) -> Any:
    return with_innocent(client, client.submit(unpack, zlib.compress(bytes(30 * MB)), 60))


CULPRITS = {
    "swell among small": Culprit(among(swell), "swell"),
    "swell among naps": Culprit(among(swell, innocent=nap), "swell"),
    "swell alone": Culprit(repeated(swell, 4), "swell"),
    "burst alone": Culprit(repeated(burst, 2), "burst"),
    "burst among small": Culprit(among(burst), "burst", may_be_open=True),
    "two at a time": Culprit(two_at_a_time, "middling"),
    "results kept": Culprit(repeated(load, 30), "load"),
    "put together": Culprit(put_together, "total", may_be_open=True),
    "left behind": Culprit(repeated(leave_behind, 100), "leave_behind"),
    "two swell": Culprit(among(swell, swell_too), None, workers=1),
    "unpack among small": Culprit(unpack_among, "unpack"),
    "once larger": Culprit(once_larger, "swell", may_be_open=True),
    "strings among naps": Culprit(among(join_strings, innocent=nap), "join_strings", True),
}


def run(name: str, directory: Path) -> dasfprof.TraceAnalyser:
    """Record a program until its culprit fails, and return the analyser of the run."""
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
    for name in names or CULPRITS:
        with tempfile.TemporaryDirectory() as directory:
            table = run(name, Path(directory)).died_of_memory()
        print(f"{name}: the culprit is {CULPRITS[name].function}", flush=True)
        for row in table.to_dict("records"):
            facts = (row["Suspect"], row["Certainty"], row["Because"], row["Tasks"])
            print(f"    {row['Left (s)']:.1f} s: {facts}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
