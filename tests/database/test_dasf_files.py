"""Files of DASF, complete or damaged, are read with the same functions."""

import os
import random
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest

from dasfprof.database import (
    DasfDatabase,
    EventProfiler,
    MultiEventDatabase,
    find_runs,
    open_database,
    open_run,
)
from dasfprof.errors import DasfprofError, NotATraceError, ReadOnlyError
from dasfprof.schema.events import CompleteEvent, DurationBeginEvent, Event, InstantEvent

USAGE = {"cpu": 40.2, "memory": 2744729600, "time": 1692111381.5, "gpu_utilization": 0}
RUN = {"key": "inc-1", "state": "memory", "shape": [], "dependencies": ["x", "y"]}
HOST: dict[str, Any] = {"process_id": "c096", "thread_id": None, "args": USAGE}
WORKER: dict[str, Any] = {"process_id": "c096", "thread_id": "worker-c096-2", "args": RUN}
#: Events as DASF writes them: the timestamp of a complete event is its end.
RECORDS: list[dict[str, Any]] = [
    {"name": "Resource Usage", "timestamp": 3869.5, "phase": "I", "scope": "g", **HOST},
    {"name": "Compute", "timestamp": 3838.0, "duration": 0.25, "phase": "X", **WORKER},
    {"name": "begun", "timestamp": 5, "phase": "B", "process_id": 0, "thread_id": 0, "args": {}},
]
EVENTS: list[Event] = [
    InstantEvent("Resource Usage", 3869.5, **HOST),
    CompleteEvent("Compute", 3837.75, 0.25, **WORKER),
    DurationBeginEvent("begun", 5),
]


def record(fields: Any) -> bytes:
    data: bytes = msgpack.packb(fields)
    return struct.pack(">Q", len(data)) + data


def lost(database: DasfDatabase) -> tuple[list[Event], int]:
    return [*database.get_traces()], database.lost_bytes


def test_events_are_read_with_their_start(tmp_path: Path) -> None:
    path = tmp_path / "t.msgpack"
    path.write_bytes(b"".join(map(record, RECORDS)))
    for database in (open_database(path), EventProfiler(path), open_run(path)):
        assert [*database.get_traces()] == EVENTS
    assert lost(DasfDatabase(path)) == (EVENTS, 0)
    with pytest.raises(ReadOnlyError, match="DasfDatabase at"):
        EventProfiler(path).record_instant_event("n", 1.0)
    batches = {batch.name: batch for _, batch in MultiEventDatabase([path]).batches()}
    assert batches["Compute"].args["dependencies"].to_list() == [["x", "y"]]
    assert os.listdir(tmp_path) == ["t.msgpack"]


def test_a_file_cut_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.msgpack"
    records = [*map(record, RECORDS)]
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    whole = b"".join(records)
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        count = sum(end <= length for end in ends) - 1
        assert lost(DasfDatabase(path)) == (EVENTS[:count], length - ends[count])
        if count:
            assert [*open_run(path)] == EVENTS[:count]


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**32, 10**6], ids=hex)
def test_absurd_lengths_end_the_reading(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.msgpack"
    first = record(RECORDS[0])
    path.write_bytes(first + struct.pack(">Q", length) + record(RECORDS[1]))
    assert lost(DasfDatabase(path)) == (EVENTS[:1], 8 + len(record(RECORDS[1])))
    path.write_bytes(struct.pack(">Q", length) + record(RECORDS[1]))
    with pytest.raises(NotATraceError):
        open_run(path)


GOOD: dict[Any, Any] = {"name": "n", "timestamp": 1.0}


@pytest.mark.parametrize(
    "odd",
    [
        *([], 5, {}, {"name": "n"}),
        *(GOOD | {"name": 5}, GOOD | {"timestamp": "soon"}, GOOD | {"timestamp": None}),
        *(GOOD | {"args": None}, GOOD | {"args": {"x": msgpack.ExtType(5, b"")}}),
        *(GOOD | {"phase": "Z"}, GOOD | {"phase": ["I"]}, GOOD | {"more": 1}, GOOD | {5: 6}),
        *(GOOD | {"phase": "X"}, GOOD | {"duration": "long", "phase": "X"}),
    ],
    ids=repr,
)
def test_an_event_that_is_none_is_left_out(tmp_path: Path, odd: Any) -> None:
    path = tmp_path / "t.msgpack"
    path.write_bytes(record(RECORDS[0]) + record(odd) + record(RECORDS[1]))
    assert lost(DasfDatabase(path)) == (EVENTS[:2], len(record(odd)))
    assert sum(batch.rows for _, batch in open_run(path).batches()) == 2


def test_random_changes_raise_only_own_errors(tmp_path: Path) -> None:
    draw = random.Random(2)
    whole = b"".join(map(record, RECORDS * 3))
    path = tmp_path / "t.msgpack"
    for _ in range(500):
        changed = bytearray(whole)
        for _ in range(draw.choice((1, 3, 20))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        path.write_bytes(changed)
        assert len(lost(DasfDatabase(path))[0]) <= 9
        try:
            assert sum(batch.rows for _, batch in open_run(path).batches()) <= 9
        except DasfprofError:
            continue


def test_files_of_one_run_are_found_by_their_names(tmp_path: Path) -> None:
    names = [
        "Tutorial-ResourceMonitor-c096.msgpack",
        "Tutorial-TracePlugin-c096.msgpack",
        "Other-TracePlugin-c096.msgpack",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"".join(map(record, RECORDS)))
    found = {run.name: [path.name for path in run.files] for run in find_runs(tmp_path)}
    assert found == {"Tutorial": names[:2], "Other": names[2:]}
    assert [*open_run(tmp_path / "Tutorial")] == EVENTS * 2
    assert [*open_run(tmp_path / "Ot")] == EVENTS
