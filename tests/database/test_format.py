"""FORMAT.md is right and sufficient for reading a trace."""

import ast
import datetime
import re
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trace_by_format

import dasfprof.database
from dasfprof.database import FileDatabase
from dasfprof.database.blocks import BlockEncoder, fold_events
from dasfprof.database.frames import DICTIONARY, build_frame, deflate
from dasfprof.database.writer import Source
from dasfprof.schema import KINDS
from dasfprof.schema.events import (
    CompleteEvent,
    DurationBeginEvent,
    DurationEndEvent,
    Event,
    InstantEvent,
    Schema,
)

FORMAT = (Path(dasfprof.database.__file__).parent / "FORMAT.md").read_text()
HEX = "0123456789abcdef0123456789abcdef"
UUID = "01234567-89ab-cdef-0123-456789abcdef"

#: A key of each kind.
KEYS = {
    0: "a plain key",
    1: f"inc-{UUID}-17",
    2: f"inc-{HEX}",
    3: f"inc-{UUID}",
    4: "ensure-communicating-1700000000.25",
    5: ("x", ("nested", -1), b"bytes"),
    8: ("x",),
    9: ("x", 1),
    10: ("x", 1, 2**32 - 1),
    11: ("x", 1, 2, 3),
    12: ("x", 1, 2, 3, 4),
}
#: A value of each extension type by number.
EXTENDED = {
    1: (1, ("nested", [])),
    2: -(2**100),
    3: {1, 2},
    4: frozenset("ab"),
    5: complex(-0.5, float("inf")),
    6: datetime.datetime(2024, 2, 29, 12, 30, 0, 5, datetime.timezone.utc),
    7: datetime.date(1970, 1, 1),
    8: datetime.timedelta(-1, 3, 7),
}

EVENTS: list[Event] = [
    *(CompleteEvent("Keys", 1.7e9, 0.5, args={"key": key}) for key in KEYS.values()),
    CompleteEvent("Keys", 1.7e9, 0.5, args={"key": "k", "dependencies": [*KEYS.values()]}),
    CompleteEvent("Keys", 1.7e9, 0.5, args={"key": "k", "dependencies": []}),
    *(InstantEvent("Values", 5, args={"value": value}) for value in EXTENDED.values()),
    InstantEvent("Text", 1.7e9 + 0.25, args={"text": "\udc80 é \x00"}, phase="R"),
    InstantEvent("Text", 1.7e9 + 300, args={"text": None}, phase="R", scope="t"),
    DurationBeginEvent("Numbers", 0.1, process_id="host", args={"number": -(2**63)}),
    DurationBeginEvent("Numbers", 0.1, process_id="host", args={"number": 2**63 - 1}),
    DurationBeginEvent("Numbers", 0.1, process_id="host", args={"number": 0}),
    *(
        DurationEndEvent("Ends", 1e9 * number, args={"u1": -number % 7, "u2": 256 * number % 511})
        for number in range(9)
    ),
]

OPTIONAL = Schema(
    "I",
    "Optional",
    (("timestamp", "float"),),
    (("time", "time"), ("exact", "time"), ("ratio", "float32"), ("never", "time")),
)
OPTIONAL_ROWS: list[tuple[Any, ...]] = [
    (1.7e9, 1.7e9, 0.1, 0.5, None),
    (1.7e9, None, None, None, None),
    (1.7e9, 1.7e9 + 2**-22, -0.3, 0.25, None),
]


def test_a_stranger_reads_by_it_what_was_recorded(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "all.msgpack", header={"run": "all forms"})
    for event in EVENTS:
        database.record(event)
    database.commit()
    database.writer.add_source(Source.from_schema(OPTIONAL, {"thread_id": "worker-h-0"}))
    database.writer.sources[-1].rows.extend(OPTIONAL_ROWS)
    database.close()

    contents = trace_by_format.read(database.path.read_bytes())

    assert [position for position, *_ in contents.events] == [*range(len(contents.events))]
    assert len(contents.events) == len(EVENTS) + len(OPTIONAL_ROWS)
    for event, (_, phase, name, fields, args) in zip(EVENTS, contents.events, strict=False):
        own = {field: getattr(event, field) for field in event.FIELDS}
        if event.phase != phase:
            own["phase"] = event.phase
        assert (name, fields, args) == (event.name, own, event.args)
        assert [*map(type, args.values())] == [*map(type, event.args.values())]
        assert type(event).__name__ == {
            "X": "CompleteEvent",
            "I": "InstantEvent",
            "B": "DurationBeginEvent",
            "E": "DurationEndEvent",
        }.get(phase)
    names = ["time", "exact", "ratio", "never"]
    for row, event_read in zip(OPTIONAL_ROWS, contents.events[len(EVENTS) :], strict=True):
        fields = {"timestamp": row[0], "thread_id": "worker-h-0"}
        args = dict(zip(names, row[1:], strict=True))
        assert event_read[1:] == ("I", "Optional", fields, args)

    assert contents.forms >= {"c", "c nil", "a", "d", "k", "l", "n u1 int", "n u2 int"}
    assert contents.forms >= {"n i8 int", "n u4 float", "o u4 float", "o f8 int", "o f4 int"}
    assert contents.key_kinds == KEYS.keys()
    assert contents.extensions == EXTENDED.keys()


def test_every_frame_tells_the_clock_and_what_was_lost(tmp_path: Path) -> None:
    before = time.time(), time.monotonic()
    with FileDatabase(tmp_path / "t.msgpack", header={"run": "r"}) as database:
        database.record(InstantEvent("a", 1.0))
    after = time.time(), time.monotonic()

    header, events, end = trace_by_format.read(database.path.read_bytes()).frames

    for frame in (header, events, end):
        assert before[0] <= frame["clock"][0] <= after[0]
        assert before[1] <= frame["clock"][1] <= after[1]
        assert (frame["dropped"], frame["errors"]) == (0, 0)
    assert (header["kind"], header["version"], header["run"]) == ("header", 3, "r")
    assert {"host", "boot_id", "pid", "created", "versions"} <= header.keys()
    assert (end["kind"], end["events"]) == ("end", 1)


def test_the_example_is_what_the_code_writes() -> None:
    dumps = re.findall(r"```\n((?:[0-9a-f]{2}[ \n])+)```", FORMAT)
    events: list[Event] = [
        InstantEvent("tick", 1700000000.0, args={"n": 7, "tag": None}),
        InstantEvent("tick", 1700000000.5, args={"n": 9, "tag": "a"}),
    ]
    ((schema, rows, positions),) = fold_events(events)
    encoder = BlockEncoder(schema)
    encoder.extend(rows, positions)
    payload = encoder.payload(clock=[1700000001.0, 50.0], dropped=0, errors=0)

    plain, deflated = map(bytes.fromhex, dumps)
    assert plain == build_frame(payload)

    (shown,) = re.findall(r"```text\n(.*?)```", FORMAT, re.DOTALL)
    # zlib's output may differ between versions.
    for dump in (plain, deflated, build_frame(deflate(payload))):
        (frame,) = trace_by_format.read(dump).frames
        assert frame == ast.literal_eval(shown)
    stated = re.search(r"deflates this payload, to (\d+) bytes", FORMAT)
    assert stated is not None
    assert len(deflated) == 20 + int(stated[1]) < len(plain)


def test_the_dictionary_is_the_one_that_is_used() -> None:
    assert trace_by_format.DICTIONARY == DICTIONARY
    stated = f"{len(DICTIONARY)} bytes with the CRC-32 `{zlib.crc32(DICTIONARY):08x}`"
    assert stated in FORMAT


def test_readings_are_rounded_to_16_bits(tmp_path: Path) -> None:
    readings = [0.1, -3.3e-5, 1 / 3, 12345.678, 3.3e38]
    exact = [0.0, 100.0, 1980.0, 65535.0, float("inf"), None]
    schema = Schema("I", "Readings", (("timestamp", "float"),), (("value", "float32"),))
    with FileDatabase(tmp_path / "t.msgpack") as database:
        database.writer.add_source(source := Source.from_schema(schema))
        source.rows.extend((1.0, value) for value in readings + exact)

    contents = trace_by_format.read(database.path.read_bytes())
    read = [args["value"] for *_, args in contents.events]

    # The first of 16 bits is always one, so the last one is at most 2^-15 of the number.
    assert read[: len(readings)] == pytest.approx(readings, rel=2**-16)
    assert read[len(readings) :] == exact
    (column,) = contents.frames[1]["args"].values()
    assert column[1] == "f4"
    assert not any(column[4][::4])


def test_every_recorded_event_is_listed() -> None:
    listed = re.findall(r"^\| ([A-Z][\w ]+) \| ([XI]) \| \w+ \|", FORMAT, re.MULTILINE)
    assert {(kind.name, kind.phase) for kind in KINDS.values()} <= {*listed}
    assert len(listed) == len({*listed})


def test_short_payloads_are_padded_to_the_stated_length() -> None:
    """Equal rows take no bytes, but a reader may assume at most two values per byte."""
    events: list[Event] = [InstantEvent("same", 0.0, args={"a": 0, "b": 0})] * 10_000
    ((schema, rows, positions),) = fold_events(events)
    encoder = BlockEncoder(schema)
    encoder.extend(rows, positions)
    frame = build_frame(encoder.payload(clock=[0.0, 0.0], dropped=0, errors=0))
    block = trace_by_format.read(frame).frames[0]

    values = 10_000 * (1 + len(block["fields"]) + len(block["args"]))
    assert values <= 2 * (len(frame) - 20)
    assert np.all([args == {"a": 0, "b": 0} for *_, args in trace_by_format.read(frame).events])
