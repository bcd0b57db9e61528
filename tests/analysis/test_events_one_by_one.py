"""Events read one by one hold what analyses written for DASF's events look for in each of them."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from traces import Plugin, row

import dasfprof
from dasfprof import EventProfiler, MultiEventDatabase
from dasfprof.schema.events import Event
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE

T = 1.7e9


def named(source: Any, name: str) -> list[Event]:
    return [event for event in source if event.name == name]


def known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.fixture
def run(tmp_path: Path) -> MultiEventDatabase:
    """Two workers of a host, of which the second reads the host, and one of another."""

    def sample(time: float, cpu: float | None = None, **args: Any) -> tuple[Any, ...]:
        return row(RESOURCE_USAGE, timestamp=T + time, cpu=cpu, **args)

    first = [sample(0), sample(1, 50.0), sample(2), sample(3, 70.0, num_connections=4)]
    host = [
        sample(0.5, 20.0, host_memory_total=8e9, gpu_index=1, gpu_utilization=30.0),
        sample(1.5, 25.0, **{"host_net_io.read_bps": 100.0}),
        sample(2.5, 30.0, **{"host_net_io.read_bps": 300.0}, host_cpu=5.0),
    ]
    other = [sample(0), sample(30, 10.0)]
    Plugin(tmp_path, "ResourceMonitor", name=0).write((RESOURCE_USAGE, first))
    Plugin(tmp_path, "ResourceMonitor", name=1, address="tcp://10.0.0.1:4001").write(
        (RESOURCE_USAGE, host), (MANAGED_MEMORY, [row(MANAGED_MEMORY, timestamp=T, tasks=3)])
    )
    Plugin(tmp_path, "ResourceMonitor", host="node2", name=0, address="tcp://10.0.0.2:4000").write(
        (RESOURCE_USAGE, other)
    )
    return dasfprof.open_run(tmp_path)


def values(source: Any, field: str, worker: str) -> list[Any]:
    events = [event for event in named(source, "Resource Usage") if event.thread_id == worker]
    return [known(event.args[field]) for event in events]


def test_a_sample_has_the_last_known_values_of_its_process_and_host(
    run: MultiEventDatabase,
) -> None:
    first, second, other = "worker-node1-0", "worker-node1-1", "worker-node2-0"
    assert values(run, "cpu", first) == [50, 50, 50, 70]
    assert values(run, "num_connections", first) == [4, 4, 4, 4]
    assert values(run, "host_memory_total", first) == [8e9] * 4
    assert values(run, "host_net_io.read_bps", first) == [100, 100, 100, 300]
    assert values(run, "host_net_io.read_bps", second) == [100, 100, 300]
    assert values(run, "host_cpu", second) == [5, 5, 5]
    assert values(run, "gpu_index", second) == [1, 1, 1]
    assert values(run, "gpu_utilization", second) == [30, 30, 30]
    # Nothing of one process or host is said of another, and a reading is not carried far back.
    assert values(run, "gpu_utilization", first) == [None] * 4
    assert values(run, "host_memory_total", other) == [None] * 2
    assert values(run, "cpu", other) == [None, 10]


def test_a_file_alone_is_completed_from_itself_and_columns_stay_as_recorded(
    run: MultiEventDatabase,
) -> None:
    path = run.databases[0].path  # type: ignore[attr-defined]
    for database in (EventProfiler(path), MultiEventDatabase([path])):
        assert values(database.get_traces(), "cpu", "worker-node1-0") == [50, 50, 50, 70]
        assert values(database.get_traces(), "host_memory_total", "worker-node1-0") == [None] * 4
    (batch,) = EventProfiler(path).batches()
    assert batch.args["cpu"].to_list() == [None, 50, None, 70]


def test_dependents_are_told_across_workers(tmp_path: Path) -> None:
    block = ("sum-" + "1a" * 16, 0, 3)

    def compute(key: Any, *dependencies: Any) -> tuple[Any, ...]:
        return row(COMPUTE, timestamp=T, key=key, dependencies=list(dependencies))

    runs = [compute("a-1"), compute(block, "a-1"), compute(b"x", block, 7)]
    more = [compute(7, "a-1"), compute(b"x", block, 7), compute("e-1")]  # b"x" ran twice
    Plugin(tmp_path).write((COMPUTE, runs))
    Plugin(tmp_path, name=1, address="tcp://10.0.0.1:4001").write((COMPUTE, more))
    found = named(dasfprof.open_run(tmp_path), "Compute")
    dependents = [(event.args["key"], set(event.args["dependents"])) for event in found]
    assert dependents == [
        ("a-1", {block, 7}), (block, {b"x"}), (b"x", set()),
        (7, {b"x"}), (b"x", set()), ("e-1", set()),
    ]  # fmt: skip
    assert all(
        len(set(event.args["dependents"])) == len(event.args["dependents"]) for event in found
    )


def test_events_of_user_code_stay_as_they_are(tmp_path: Path) -> None:
    with EventProfiler(tmp_path / "mine.msgpack").database as database:
        recorder = EventProfiler(database=database)
        recorder.record_instant_event("Resource Usage", 1.0, args={"cpu": None, "host_x": 1})
        recorder.record_complete_event("Compute", 1.0, 2.0, args={"key": "k", "dependencies": []})
    usage, compute = dasfprof.open_run(tmp_path)
    assert usage.args == {"cpu": None, "host_x": 1}
    assert compute.args == {"key": "k", "dependencies": []}


def test_what_an_analysis_for_dasf_looks_for_is_in_each_event_of_a_run(tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, directory=tmp_path) as recorded,
    ):
        numbers = client.map(float, range(6), pure=False)
        total = client.submit(sum, numbers)
        assert total.result() == 15
    events = list(MultiEventDatabase([EventProfiler(path) for path in recorded.files()]))
    edges, sizes, seconds = set(), {}, defaultdict(float)
    for event in named(events, "Compute"):
        args = event.args
        sizes[args["key"]] = args["size"]
        seconds[event.process_id, event.thread_id, args["name"]] += event.duration
        edges |= {(key, args["key"]) for key in args["dependencies"]}
        edges |= {(args["key"], key) for key in args["dependents"]}
        assert {"shape", "type", "dtype", "state"} <= args.keys()
    assert edges == {(number.key, total.key) for number in numbers}
    assert sizes.keys() == {total.key, *(number.key for number in numbers)}
    assert all(isinstance(spent, float) for spent in seconds.values())
    samples = named(events, "Resource Usage")
    for field in ("cpu", "memory", "time", "num_fds", "gpu_utilization", "gpu_memory_used"):
        assert isinstance(sum(event.args[field] for event in samples), int | float), field
    assert all(event.args["host_memory_total"] > 0 for event in samples)
    for event in named(events, "Managed Memory"):
        assert isinstance(event.args["tasks"], int)
        assert "key" not in event.args  # it belongs to no task: see `get_traces`
