"""The memory at a time in a trace equals that of the workers, with the reasons."""

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


def block(i: int) -> Any:
    return np.ones(SIZE, dtype="u1")


def slow(array: Any) -> int:
    Event("go-on").wait()
    return len(array)


def use(array: Any) -> int:
    return len(array)


def in_memory(dask_worker: Any) -> tuple[dict[str, int], int]:
    """Return the bytes of results by function of a worker, and those of its process."""
    sizes: Counter[str] = Counter()
    for key, value in dask_worker.data.items():
        sizes[key_split(key)] += sizeof(value)
    return dict(sizes), dask_worker.monitor.proc.memory_info().rss


def settled(client: Client) -> Any:
    """Return the memory of workers once it has not changed for a second."""
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


def test_memory_at_a_moment(client: Client, tmp_path: Path) -> None:
    workers = list(client.nthreads())
    go_on = Event("go-on", client=client)
    with dasfprof.profile(client, directory=tmp_path) as run:
        held = client.map(block, range(8), key="kept")
        released = client.map(block, range(2), key="gone")
        inputs = client.map(block, range(4), key="part")
        seeds = {at: client.submit(block, 0, key=f"seed-{at}", workers=[at]) for at in workers}
        wait([*held, *released, *inputs, *seeds.values()], timeout=120)
        running = [client.submit(slow, each, workers=[at]) for at, each in seeds.items()]
        wait_until(lambda: all(client.run(lambda dask_worker: dask_worker.state.executing_count)))
        waiting = client.map(use, inputs)
        del released, inputs, seeds
        had = settled(client)
        at = time.time() - 0.5  # in the second without changes
        settled(client)
        go_on.set()
        wait([*running, *waiting], timeout=120)
    analyser = TraceAnalyser(run.files(), progress=False)
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
    # The reasons follow from the program.
    table = analyser.memory_at(at - trace.begin).set_index("Function")
    results = table[(table.index != "") & ~table["Why Held"].str.startswith("copy")].sort_index()
    assert results[["Why Held", "Needed By", "Results"]].to_dict("index") == {
        "kept": {"Why Held": "for the client", "Needed By": "", "Results": 8},
        "part": {"Why Held": "for tasks yet to begin", "Needed By": "use", "Results": 4},
        "seed": {"Why Held": "for running tasks", "Needed By": "slow", "Results": 2},
    }
    assert results["Line"].str.contains("test_held_memory").all()
    asked = results["Asked At"]
    assert asked["kept"].startswith("test_held_memory.py:")
    assert asked["kept"] == results["Line"]["kept"]  # both by `map`
    assert (asked.drop("kept") == "").all()
    # All rows of the peak are at the same time.
    peak = analyser.memory_peak()
    assert peak["Time (s)"].nunique() == 1
    assert peak["Memory (MB)"].sum() >= 0.7 * sum(process for _, process in had.values()) / 1e6
    assert analyser.memory_at(float(peak["Time (s)"].iloc[0])).equals(peak)
