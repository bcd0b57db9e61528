"""Predicted and real peak memory of programs that are recorded on two workers and run on others.

``memory_forecasts.py [NAME ...]`` runs the programs. For each other cluster, it prints the
predicted interval and the real peak of the results of the fullest worker and of its process. Of 20
runs on two busy cores, the results of 18 and the processes of all were inside the intervals, and
19 intervals of each were at most 1.5 wide.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from clusters import new_client
from distributed import Client, Future, wait

import dasfprof
from dasfprof import TraceAnalyser

MB = 1_000_000
RECORDED = (2, 1)
#: Workers and threads per worker of the real runs.
HELD_OUT = ((3, 2), (5, 1))

#: Bytes of a part in the recorded run. The durations of tasks are for parts of this size.
USUAL = 12 * MB


def load(number: int, size: float = USUAL, seconds: float = 0.2) -> Any:
    time.sleep(seconds * size / USUAL)
    return np.full(int(size) // 8, float(number))


def work(seconds: float, part: Any) -> None:
    time.sleep(seconds * part.nbytes / USUAL)


def add(*parts: Any) -> Any:
    work(0.15, parts[0])
    return sum(parts[1:], parts[0] + 0)


def use(part: Any) -> float:
    work(0.15, part)
    return float(part[0])


def swell(part: Any) -> float:
    """Take far more memory than the input and the result have."""
    again = np.concatenate([part] * 4)
    work(0.35, part)
    return float(again[-1])


def slow_total(*parts: Any) -> float:
    time.sleep(0.3)
    return float(sum(part[0] for part in parts))


def loaded(client: Client, number: int) -> list[Future]:
    return client.map(load, range(number), pure=False)


def tree(client: Client) -> None:
    level = loaded(client, 32)
    while len(level) > 1:
        level = [client.submit(add, *level[i : i + 2]) for i in range(0, len(level), 2)]
    wait(level)


def each_by_itself(client: Client) -> None:
    wait(client.map(use, loaded(client, 40), pure=False))


def all_at_once(client: Client) -> None:
    parts = loaded(client, 32)
    client.submit(slow_total, *[client.submit(add, part) for part in parts]).result()


def held_by_the_client(client: Client) -> None:
    parts = loaded(client, 24)
    wait(parts)
    for _ in range(3):
        client.gather(client.map(use, parts, pure=False))


def with_temporaries(client: Client) -> None:
    client.gather(client.map(swell, loaded(client, 24), pure=False))


def one_after_the_other(client: Client) -> None:
    for _ in range(4):
        client.submit(slow_total, *loaded(client, 12)).result()


def of_unequal_sizes(client: Client) -> None:
    sizes = [(4 + 5 * (i % 5)) * MB for i in range(30)]
    parts = client.map(load, range(len(sizes)), sizes, pure=False)
    client.submit(slow_total, *parts).result()


def slowed(block: Any) -> Any:
    time.sleep(0.05 * block.nbytes / (8 * MB))
    return block


def random_array(parts: int) -> Any:
    """Return a random array with chunks of 8 MB."""
    return da.random.random((parts * 1000, parts * 1000), chunks=1000).map_blocks(slowed)


def transposed(client: Client) -> None:
    x = random_array(8)
    (x + x.T).map_blocks(slowed).sum().compute()


def rechunked(client: Client) -> None:
    with dask.config.set({"array.rechunk.method": "tasks"}):
        x = random_array(6).rechunk((6000, 500)).map_blocks(slowed)
        x.sum(axis=0).sum().compute()


def multiplied(client: Client) -> None:
    x = random_array(6)
    da.dot(x, x).map_blocks(slowed).sum().compute()


_OF_FUTURES = (tree, each_by_itself, all_at_once, held_by_the_client, with_temporaries)
_OF_FUTURES += (one_after_the_other, of_unequal_sizes)
PROGRAMS: dict[str, Callable[[Client], None]] = {
    each.__name__: each for each in (*_OF_FUTURES, transposed, rechunked, multiplied)
}


@dataclass(frozen=True)
class Outcome:
    """Real and predicted peak of one kind of memory in a run, in MB."""

    program: str
    workers: int
    threads: int
    kind: str
    least: float
    most: float
    real: float

    @property
    def inside(self) -> bool:
        return self.least <= self.real <= self.most

    def __str__(self) -> str:
        mark = "" if self.inside else "  OUTSIDE"
        return (
            f"{self.program:20} {self.workers} x {self.threads}  {self.kind:8} {self.least:7.0f} "
            f"to {self.most:5.0f}, real {self.real:5.0f}, {self.most / self.least:.2f} wide{mark}"
        )


def record(
    program: Callable[[Client], None], size: tuple[int, int], directory: Path
) -> TraceAnalyser:
    """Record a program; `size` has the number of workers and of threads per worker."""
    workers, threads = size
    with (
        new_client(n_workers=workers, threads_per_worker=threads, memory_limit=0) as client,
        dasfprof.profile(client, directory=directory) as run,
    ):
        program(client)
        time.sleep(0.3)
    return TraceAnalyser(run.files(), progress=False)


def real_peaks(analyser: TraceAnalyser) -> dict[str, float]:
    """Return the peak memory of a worker in the samples, in MB."""
    held, used = analyser.trace.managed_memory, analyser.trace.samples
    return {
        "Results": held.groupby("worker_id")["size"].max().max() / MB,
        "Process": used.groupby("worker_id")["memory"].max().max() / MB,
    }


def forecasts(name: str, directory: Path) -> list[Outcome]:
    """Record a program on two workers, run it on others, and compare the memory."""
    recorded = record(PROGRAMS[name], RECORDED, directory / "recorded")
    outcomes = []
    for number, (workers, threads) in enumerate(HELD_OUT):
        real = real_peaks(record(PROGRAMS[name], (workers, threads), directory / str(number)))
        (row,) = recorded.memory_forecast([workers], threads=threads).to_dict("records")
        if row["Verdict"].startswith("Not predicted"):
            print(f"{name:20} {workers} x {threads}  {row['Verdict']} real {real}", flush=True)
            continue
        for kind in ("Results", "Process"):
            least, most = row[f"{kind} at Least (MB)"], row[f"{kind} at Most (MB)"]
            outcomes.append(Outcome(name, workers, threads, kind, least, most, real[kind]))
    return outcomes


def main(names: list[str]) -> None:
    outcomes: list[Outcome] = []
    for name in names or list(PROGRAMS):
        with tempfile.TemporaryDirectory() as directory:
            for outcome in forecasts(name, Path(directory)):
                outcomes.append(outcome)
                print(outcome, flush=True)
    for kind in ("Results", "Process"):
        selected = [outcome for outcome in outcomes if outcome.kind == kind]
        inside = sum(outcome.inside for outcome in selected)
        narrow = sum(outcome.most <= 1.5 * outcome.least for outcome in selected)
        print(f"{kind}: {inside} of {len(selected)} inside; {narrow} at most 1.5 wide")


if __name__ == "__main__":
    main(sys.argv[1:])
