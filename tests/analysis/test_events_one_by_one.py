"""Single events have the args that analyses for DASF's events expect."""

import math
from pathlib import Path
from typing import Any

from clusters import new_client
from traces import Plugin, T, row

import dasfprof
from dasfprof import EventProfiler, MultiEventDatabase
from dasfprof.schema.events import Event
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE


def named(source: Any, name: str) -> list[Event]:
    return [event for event in source if event.name == name]


def known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def test_numbers_that_a_process_did_not_read_are_nan(tmp_path: Path) -> None:
    samples = [row(RESOURCE_USAGE, timestamp=T), row(RESOURCE_USAGE, timestamp=T + 1, cpu=50.0)]
    Plugin(tmp_path, "ResourceMonitor", name=0).write((RESOURCE_USAGE, samples))
    events = named(dasfprof.open_run(tmp_path), "Resource Usage")
    assert [known(event.args["cpu"]) for event in events] == [None, 50.0]
    assert all(math.isnan(event.args["host_memory_total"]) for event in events)
    (path,) = tmp_path.glob("*.msgpack")
    (batch,) = EventProfiler(path).batches()
    assert batch.args["cpu"].to_list() == [None, 50.0]


def test_dependents_are_told_across_workers(tmp_path: Path) -> None:
    block = ("sum-" + "1a" * 16, 0, 3)

    def compute(key: Any, *dependencies: Any) -> tuple[Any, ...]:
        return row(COMPUTE, timestamp=T, key=key, dependencies=list(dependencies))

    runs = [compute("a-1"), compute(block, "a-1"), compute(b"x", block, 7)]
    more = [compute(7, "a-1"), compute(b"x", block, 7), compute("e-1")]  # b"x" ran twice
    Plugin(tmp_path).write((COMPUTE, runs))
    Plugin(tmp_path, name=1, address="tcp://10.0.0.1:4001").write((COMPUTE, more))
    found = [event.args for event in named(dasfprof.open_run(tmp_path), "Compute")]
    assert [(args["key"], set(args["dependents"])) for args in found] == [
        ("a-1", {block, 7}), (block, {b"x"}), (b"x", set()),
        (7, {b"x"}), (b"x", set()), ("e-1", set()),
    ]  # fmt: skip
    assert all(len(set(args["dependents"])) == len(args["dependents"]) for args in found)


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
        new_client(n_workers=2, threads_per_worker=1, processes=False) as client,
        dasfprof.profile(client, directory=tmp_path) as recorded,
    ):
        numbers = client.map(float, range(6), pure=False)
        total = client.submit(sum, numbers)
        assert total.result() == 15
    events = list(MultiEventDatabase([EventProfiler(path) for path in recorded.files()]))
    edges, keys = set(), set()
    for event in named(events, "Compute"):
        args = event.args
        keys.add(args["key"])
        edges |= {(key, args["key"]) for key in args["dependencies"]}
        edges |= {(args["key"], key) for key in args["dependents"]}
        assert {"shape", "type", "dtype", "state", "size", "name"} <= args.keys()
        assert isinstance(event.duration, float)
    assert edges == {(number.key, total.key) for number in numbers}
    assert keys == {total.key, *(number.key for number in numbers)}
    samples = named(events, "Resource Usage")
    for field in ("cpu", "memory", "time", "num_fds", "gpu_utilization", "gpu_memory_used"):
        assert isinstance(sum(event.args[field] for event in samples), int | float), field
    assert any(event.args["host_memory_total"] > 0 for event in samples)
    for event in named(events, "Managed Memory"):
        assert isinstance(event.args["tasks"], int)
        assert "key" not in event.args  # it does not belong to a task; see `get_traces`
