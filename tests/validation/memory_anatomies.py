"""What `memory_at` says of random moments, against what workers and the scheduler had then.

``memory_anatomies.py [NAME ...]`` runs the programs on two workers. Observers on their
event loops, and on the scheduler's, note at random times which results there are, by Dask's own
states of tasks. Printed is how far the bytes of functions are off, and which share of all bytes is
said to be held for what the scheduler held it for: tasks, the client, or nothing any more.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.utils import key_split
from distributed import Client, LocalCluster
from memory_forecasts import PROGRAMS as FORECAST

import dasfprof
from dasfprof import TraceAnalyser

MB = 1_000_000
#: Mean seconds between two looks, and how many of a program are compared.
BETWEEN, LOOKS = 0.05, 85
#: What the table says that a result is held for, by what the scheduler can be asked.
FOR = {
    "for tasks yet to begin": "tasks",
    "for running tasks": "tasks",
    "for the client": "client",
    "released late": "nothing",
}


# --- Programs ------------------------------------------------------------------------------------


def slowed(block: Any) -> Any:
    time.sleep(0.1)
    return block


def frame(parts: int) -> Any:
    rows = pd.DataFrame({"key": np.arange(parts * 40_000) % 997, "value": 1.0})
    return dd.from_pandas(rows, npartitions=parts).map_partitions(slowed)


def shuffled(client: Client) -> None:
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        frame(12).shuffle("key").map_partitions(slowed).value.sum().compute()


def grouped(client: Client) -> None:
    frame(24).groupby("key").value.agg(["mean", "max"], split_out=4).compute()


PROGRAMS: dict[str, Callable[[Client], None]] = {
    **{name: FORECAST[name] for name in ("rechunked", "multiplied", "tree", "held_by_the_client")},
    **{one.__name__: one for one in (shuffled, grouped)},
}


# --- Observers -----------------------------------------------------------------------------------


async def observe_worker(dask_worker: Any) -> None:
    """Note at random times which results a worker has, with their bytes."""

    async def look() -> None:
        while True:
            await asyncio.sleep(random.expovariate(1 / BETWEEN))
            tasks = dask_worker.state.tasks
            have = {key: tasks[key].nbytes for key in dask_worker.data if key in tasks}
            dask_worker.looks.append((time.time(), have))

    dask_worker.looks = []
    dask_worker.looking = asyncio.create_task(look())


async def observe_scheduler(dask_scheduler: Any) -> None:
    """Note at random times what each result in memory is there for."""

    async def look() -> None:
        while True:
            await asyncio.sleep(random.expovariate(1 / BETWEEN))
            why = {
                task.key: "tasks" if task.waiters else "client" if task.who_wants else "nothing"
                for task in dask_scheduler.tasks.values()
                if task.state == "memory"
            }
            dask_scheduler.looks.append((time.time(), why))

    dask_scheduler.looks = []
    dask_scheduler.looking = asyncio.create_task(look())


def looks_of(dask_worker: Any) -> list[tuple[float, dict[Any, int]]]:
    """Give what was noted on a worker."""
    dask_worker.looking.cancel()
    return list(dask_worker.looks)


def looks_of_scheduler(dask_scheduler: Any) -> list[tuple[float, dict[Any, str]]]:
    """Give what was noted on the scheduler."""
    dask_scheduler.looking.cancel()
    return list(dask_scheduler.looks)


# --- Comparing -----------------------------------------------------------------------------------


def compare(name: str, place: Path) -> tuple[list[float], Counter[bool]]:
    """Run a program; give by how much bytes of functions are off, and bytes by whether right."""
    options = {"memory_limit": 0, "dashboard_address": None}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=place) as run,
    ):
        client.run(observe_worker)
        client.run_on_scheduler(observe_scheduler)
        PROGRAMS[name](client)
        of_workers = client.run(looks_of)
        of_scheduler = client.run_on_scheduler(looks_of_scheduler)
    analyser = TraceAnalyser(run.files(), progress=False)
    return bytes_off(analyser, of_workers), holders(analyser, of_scheduler)


def bytes_off(analyser: TraceAnalyser, looks: dict[str, list[Any]]) -> list[float]:
    """Give the share of a worker's bytes that are of other functions than the table says."""
    addresses = analyser.trace.workers["address"].astype(object).tolist()
    labels = analyser.trace.workers["worker"].astype(object).tolist()
    found = []
    for address, noted in looks.items():
        label = labels[addresses.index(address)]
        for at, have in random.sample(noted, min(LOOKS // 2, len(noted))):
            told = table_at(analyser, at, "worker")
            if told is None or not have:
                continue
            real = Counter[str]()
            for key, nbytes in have.items():
                real[key_split(key)] += nbytes
            own = told[told["Worker"].str.endswith(label)]
            said = own.groupby("Function")["Memory (MB)"].sum() * MB
            off = sum(abs(real[one] - said.get(one, 0.0)) for one in {*real, *said.index})
            found.append(off / max(sum(real.values()), 1))
    return found


def holders(analyser: TraceAnalyser, looks: list[Any]) -> Counter[bool]:
    """Give the bytes of which the table says what they are held for as the scheduler has it."""
    found = Counter[bool]()
    sizes: dict[str, float] = {}
    tasks = analyser.trace.tasks
    for key, size in zip(
        analyser.trace.keys.texts(tasks["key_id"].to_numpy()), tasks["size"], strict=True
    ):
        sizes[str(key)] = float(size)
    for at, why in random.sample(looks, min(LOOKS, len(looks))):
        told = table_at(analyser, at, "cluster")
        if told is None:
            continue
        real, said = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for key, reason in why.items():
            real[key_split(key), reason] += sizes.get(str(key), 0.0)
        for row in told.to_dict("records"):
            if row["Why Held"] in FOR:
                said[row["Function"], FOR[row["Why Held"]]] += row["Memory (MB)"] * MB
        right = sum(min(real[one], said[one]) for one in real)
        found[True] += right
        found[False] += sum(real.values()) - right
    return found


def table_at(analyser: TraceAnalyser, at: float, by: str) -> pd.DataFrame | None:
    """Give the results that the table lists of a moment; None: it is outside of the run."""
    moment = at - analyser.trace.begin
    if not 0 <= moment <= analyser.trace.end - analyser.trace.begin:
        return None
    told = analyser.memory_at(moment, by=by)
    return told[~told["Why Held"].str.startswith("(")]


def main(names: list[str]) -> None:
    """Print how right the table is of each program."""
    for name in names or list(PROGRAMS):
        with tempfile.TemporaryDirectory() as place:
            off, held = compare(name, Path(place))
        within = sum(one <= 0.01 for one in off)
        share = held[True] / max(held[True] + held[False], 1)
        print(
            f"{name:10} {len(off):3} looks at workers, {within} within 1 %, mean {np.mean(off):.2%}"
            f" off; held for what the scheduler says: {share:.2%} of bytes",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
