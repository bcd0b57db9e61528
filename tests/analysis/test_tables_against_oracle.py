"""The three tables of random runs against an oracle that loops over events."""

import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest
from dask.utils import key_split
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import compute, managed, record, usage, write_as_dasf

from dasfprof import TraceAnalyser
from dasfprof.schema.events import CompleteEvent, Event

Owner = tuple[str, str]

#: Columns that are unknown with events like DASF's.
UNTOLD = ("CPU (s)", "Waiting for CPU (s)", "Blocked (s)", "Waiting for storage (s)")
UNTOLD += ("Deserialising (s)", "Garbage Collection (s)", "Serialising (s)")

#: Multiples of an eighth, whose sums are exact in any order.
_seconds = st.integers(0, 64).map(lambda eighths: eighths / 8)
_keys = st.sampled_from(
    ["load-1", "load-2", f"sum-{'1f' * 16}", f"('sum-{'2e' * 16}', 0)", "('mean', 1)", "x"]
)
_hosts, _workers = st.sampled_from(["h1", "h2"]), st.sampled_from(["worker-0", "worker-1"])
_sizes = st.integers(0, 10**9)
_states = st.sampled_from(["memory", "memory", "memory", "erred", "cancelled"])
_facts = {"host": _hosts, "size": _sizes, "dependencies": st.lists(_keys, max_size=3)}
_tasks = st.builds(compute, _keys, _seconds, _seconds, _workers, state=_states, **_facts)
_counts = st.builds(managed, _seconds, _workers, st.integers(0, 99), host=_hosts)
_gpu = {"gpu_utilization": st.integers(0, 100), "gpu_memory_used": st.integers(0, 80 * 10**9)}
_readings = {name: st.none() | values for name, values in {**_gpu, "worker": _workers}.items()}
_samples = st.builds(usage, _seconds, host=_hosts, **_readings)


def owner_of(event: Event) -> Owner:
    return event.process_id, event.thread_id


def tasks_of(events: Sequence[Event]) -> list[CompleteEvent]:
    return [event for event in events if isinstance(event, CompleteEvent)]


def input_size(event: CompleteEvent, events: Sequence[Event]) -> float:
    """Return the sum of the dependencies' last known sizes, or NaN if one is unknown."""
    total = 0.0
    for key in event.args["dependencies"]:
        runs = [run for run in tasks_of(events) if run.args["key"] == key]
        runs = [run for run in runs if run.args["state"] == "memory"]
        ends = [run.timestamp + run.duration for run in runs]
        last = [run for run, end in zip(runs, ends, strict=True) if end == max(ends)]
        total += last[-1].args["size"] if last else math.nan
    return total


def gpu_mean(runs: list[CompleteEvent], owner: Owner, events: Sequence[Event], arg: str) -> float:
    """Return the mean of a sample over the time of task runs, in steps of a sixteenth of a second.

    A sample holds until the next one, if that follows within three usual intervals or a second.
    """
    readings = [
        event for event in events if event.name == "Resource Usage" and event.process_id == owner[0]
    ]
    both = ("gpu_utilization", "gpu_memory_used")
    of_gpus = [event for event in readings if any(event.args[name] is not None for name in both)]
    own = [event for event in of_gpus if event.thread_id == owner[1]]
    mine = own or [event for event in of_gpus if event.thread_id is None]
    mine = sorted((event for event in mine if event.args[arg] is not None), key=time_of)
    distances = [after.timestamp - event.timestamp for event, after in pairwise(mine)]
    held = max(1.0, 3 * median(distances)) if distances else math.inf
    seen: list[float] = []
    for run in runs:
        for step in range(int(run.duration * 16)):
            now = run.timestamp + step / 16
            before = [event for event in mine if event.timestamp <= now]
            seen += [event.args[arg] for event in before[-1:] if now < event.timestamp + held]
    return sum(seen) / len(seen) if seen else math.nan


def time_of(event: Event) -> float:
    return event.timestamp


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def expected_functions(events: Sequence[Event]) -> dict[tuple[str, str, str], dict[str, float]]:
    groups: dict[tuple[str, str, str], list[CompleteEvent]] = defaultdict(list)
    seconds: dict[Owner, float] = defaultdict(float)
    for event in tasks_of(events):
        groups[(*owner_of(event), key_split(event.args["key"]))].append(event)
        seconds[owner_of(event)] += event.duration
    table = {}
    for (host, worker, function), runs in groups.items():
        duration = sum(run.duration for run in runs)
        sizes = [(input_size(run, events), run.duration) for run in runs]
        known = [(size, spent) for size, spent in sizes if not math.isnan(size)]
        total = sum(size for size, _ in known)
        owner = (host, worker)
        table[host, worker, function] = {
            "Duration (s)": duration,
            "Percentage of total time (%)": ratio(100 * duration, seconds[owner]),
            "Mean GPU Utilization (%)": gpu_mean(runs, owner, events, "gpu_utilization"),
            "Mean GPU Memory Used (GB)": gpu_mean(runs, owner, events, "gpu_memory_used") / 1e9,
            "Mean Data Size (MB)": ratio(total / 1e6, len(known)),
            "Mean Throughput (MB/s)": ratio(total / 1e6, sum(spent for _, spent in known)),
            "Num Tasks (chunks)": len(runs),
            "Mean Task time (s)": duration / len(runs),
            "Failed Tasks": sum(run.args["state"] == "erred" for run in runs),
            **dict.fromkeys(UNTOLD, math.nan),
        }
    return table


def expected_tasks(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    seconds: dict[Owner, float] = defaultdict(float)
    for event in tasks_of(events):
        seconds[owner_of(event)] += event.duration
    begin = min(map(time_of, events))
    rows = []
    for event in tasks_of(events):
        key = event.args["key"]
        share = pytest.approx(ratio(100 * event.duration, seconds[owner_of(event)]), nan_ok=True)
        size, at = pytest.approx(event.args["size"] / 1e6), event.timestamp - begin
        figures = event.duration, share, size, event.args["state"], at
        rows.append((*owner_of(event), key, key_split(key), *figures))
    # Longest first. Equal ones are in order of start, host and worker.
    return sorted(rows, key=lambda row: (-row[4], row[8], row[0], row[1]))


def expected_balance(events: Sequence[Event]) -> dict[str, list[float]]:
    counts = [event for event in events if event.name == "Managed Memory"]
    if not counts:
        return {}
    begin, end = min(map(time_of, counts)), max(map(time_of, counts))
    owners = sorted(set(map(owner_of, counts)))
    everyone = set(map(owner_of, events))
    table = {}
    for host, worker in owners:
        collides = sum(other == worker for _, other in everyone) > 1
        series = []
        mine = sorted((one for one in counts if owner_of(one) == (host, worker)), key=time_of)
        for second in range(int(end - begin) + 1):
            before = [event for event in mine if event.timestamp - begin < second + 1]
            series.append(float(before[-1].args["tasks"]) if before else 0.0)
        table[f"{host} {worker}" if collides else worker] = series
    return table


@examples(10, long=51)
@given(st.lists(st.one_of(_tasks, _tasks, _counts, _samples), min_size=1, max_size=25))
def test_tables_equal_the_oracle(events: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for write in (record, write_as_dasf):
            analyser = TraceAnalyser(write(Path(directory, write.__name__), events))
            functions = analyser.per_function_bottleneck()
            tasks = analyser.per_task_bottleneck()
            balance = analyser.per_worker_task_balance()
            assert functions["Duration (s)"].is_monotonic_decreasing
            found = functions.set_index(["Host", "Worker", "Function"]).drop(columns="GPU")
            expected = expected_functions(events)
            assert set(found.index) == set(expected)
            for index, values in expected.items():
                assert found.loc[index].to_dict() == pytest.approx(values, nan_ok=True)
            columns = ["Host", "Worker", "Task Key", "Function", "Duration (s)"]
            columns += ["Percentage of total time (%)", "Memory usage (Mb)", "State", "Start (s)"]
            rows = list(tasks[columns].itertuples(index=False, name=None))
            compare_in_groups(rows, expected_tasks(events))
            check_run_ids(tasks)
            assert balance.iloc[:, 1:].to_dict("list") == expected_balance(events)


def compare_in_groups(rows: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Compare rows in order; rows with equal sort keys may be in any order."""

    def groups(table: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(row[4], row[8], row[0], row[1]) for row in table]

    assert groups(rows) == groups(expected)
    for row in rows:
        assert row in expected
        expected.remove(row)


def check_run_ids(tasks: pd.DataFrame) -> None:
    """Assert that runs of a key are numbered from 0 in order of start."""
    for _, runs in tasks.groupby("Task Key"):
        ordered = runs.sort_values("Run ID")
        assert ordered["Run ID"].tolist() == list(range(len(runs)))
        assert ordered["Start (s)"].is_monotonic_increasing
