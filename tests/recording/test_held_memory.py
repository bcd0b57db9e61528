"""What a trace tells of a moment's memory is what workers had then, and why they had it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import client_of, wait_until
from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import Client, Event, wait

import dasfprof
from dasfprof import TraceAnalyser

client = client_of(2, 1, memory_limit=0)

SIZE = 10_000_000


def kept(i: int) -> Any:
    return np.ones(SIZE, dtype="u1")


def part(i: int) -> Any:
    return np.ones(SIZE, dtype="u1")


def gone(i: int) -> Any:
    return np.ones(SIZE, dtype="u1")


def seed(i: int) -> Any:
    return np.ones(SIZE, dtype="u1")


def slow(array: Any) -> int:
    Event("go-on").wait()
    return len(array)


def use(array: Any) -> int:
    return len(array)


def in_memory(dask_worker: Any) -> tuple[dict[str, int], int]:
    """Give the bytes of the results that a worker has by function, and those of its process."""
    sizes: Counter[str] = Counter()
    for key, value in dask_worker.data.items():
        sizes[key_split(key)] += sizeof(value)
    return dict(sizes), dask_worker.monitor.proc.memory_info().rss


def settled(client: Client) -> Any:
    """Give what workers have, once that has not changed for a second."""
    before: Any = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal before, since
        now = client.run(in_memory)
        sizes = {address: results for address, (results, _) in now.items()}
        if sizes != {address: results for address, (results, _) in before.items()}:
            since = time.monotonic()
        before = now
        return time.monotonic() - since >= 1.0

    wait_until(is_settled, every=0.05)
    return before


@pytest.fixture(scope="module")
def recorded(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Record a program; give the run, a time at which nothing moved, and what workers had then."""
    first, second = client.nthreads()
    go_on = Event("go-on", client=client)
    directory: Path = tmp_path_factory.mktemp("anatomy")
    with dasfprof.profile(client, directory=directory) as run:
        held = client.map(kept, range(8))
        released, inputs = client.map(gone, range(2)), client.map(part, range(4))
        seeds = [client.submit(seed, i, workers=[at]) for i, at in enumerate((first, second))]
        wait([*held, *released, *inputs, *seeds], timeout=120)
        running = [
            client.submit(slow, one, workers=[at])
            for one, at in zip(seeds, (first, second), strict=True)
        ]
        wait_until(lambda: all(client.run(lambda dask_worker: dask_worker.state.executing_count)))
        waiting = client.map(use, inputs)
        del released, inputs, seeds
        had = settled(client)
        at = time.time() - 0.5  # within the second in which nothing changed
        settled(client)
        go_on.set()
        wait([*running, *waiting], timeout=120)
    return TraceAnalyser(run.files(), progress=False), at, had


def test_bytes_are_those_that_workers_had(recorded: Any) -> None:
    analyser, at, had = recorded
    trace = analyser.trace
    table = analyser.memory_at(at - trace.begin, by="worker")
    addresses = dict(zip(trace.workers["worker"], trace.workers["address"], strict=True))
    for worker, own in table.groupby("Worker"):
        sizes, process = had[addresses[worker]]
        told = own[own["Function"] != ""].groupby("Function")["Memory (MB)"].sum()
        assert {name: size * 1e6 for name, size in told.items()} == pytest.approx(sizes, rel=1e-6)
        assert own["Memory (MB)"].sum() == pytest.approx(process / 1e6, rel=0.3)
        rest = set(own["Why Held"][own["Function"] == ""])
        assert "(unmanaged, old)" in rest <= {"(unmanaged, old)", "(unmanaged, recent)"}
    assert set(table["Worker"]) == {name for name, where in addresses.items() if where in had}


def test_holders_are_those_of_the_program(recorded: Any) -> None:
    analyser, at, _ = recorded
    table = analyser.memory_at(at - analyser.trace.begin)
    results = table[(table["Function"] != "") & ~table["Why Held"].str.startswith("copy")]
    assert sorted(
        zip(
            results["Function"],
            results["Why Held"],
            results["Needed By"],
            results["Results"],
            strict=True,
        )
    ) == [
        ("kept", "for the client", "", 8),
        ("part", "for tasks yet to begin", "use", 4),
        ("seed", "for running tasks", "slow", 2),
    ]
    assert results["Line"].str.contains("test_held_memory").all()
    asked = results.set_index("Function")["Asked At"]
    assert asked["kept"].startswith("test_held_memory.py:")
    assert asked["kept"] == results.set_index("Function")["Line"]["kept"]  # both by `map`
    assert (asked.drop("kept") == "").all()


def test_the_peak_is_a_moment(recorded: Any) -> None:
    analyser, _, had = recorded
    peak = analyser.memory_peak()
    assert peak["Time (s)"].nunique() == 1
    assert peak["Memory (MB)"].sum() >= 0.7 * sum(process for _, process in had.values()) / 1e6
    pd_peak = analyser.memory_at(float(peak["Time (s)"].iloc[0]))
    assert pd_peak.equals(peak)
