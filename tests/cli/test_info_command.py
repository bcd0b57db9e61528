"""``dasfprof info``: contents of files, how they ended, and dropped events."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
from click.testing import Result
from shell import compute, held, invoke
from traces import write_trace

from dasfprof import FileDatabase, InstantEvent
from dasfprof.database.writer import Source
from dasfprof.schema.events import Schema

EVENTS = (compute("load-1", "load", 1000.0, 2.0), held(1001.0, 1), held(1004.5, 2))


info = partial(invoke, "info")


def flat(result: Result) -> str:
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def test_a_whole_file(tmp_path: Path) -> None:
    header = {"run": "mine", "plugin": "TracePlugin", "host": "c096", "pid": 17}
    header |= {"versions": {"dask": "2025.1.0", "python": "3.10.1"}}
    header["worker"] = {"label": "worker-c096-0"}
    path = write_trace(tmp_path / "mine-TracePlugin-c096-0.msgpack", *EVENTS, **header)
    text = flat(info(path))
    size = path.stat().st_size
    assert text.startswith("Run mine recorded 1970-01-01 00:16:40 UTC, 4.5 s host c096: 1 worker ")
    assert "versions dask 2025.1.0, python 3.10.1 " in text
    assert f"holds 1 file, {size} B, 3 events lost nothing" in text
    assert f"TracePlugin, {size} B, closed cleanly, process 17 on c096" in text
    assert "events Managed Memory 2, Compute 1" in text


def test_which_files_are_missing(tmp_path: Path) -> None:
    joined = [
        InstantEvent("Worker Added", 999.0, args={"worker": f"tcp://{number}"})
        for number in range(1, 7)
    ]
    header: dict[str, Any] = {"run": "mine", "plugin": "SchedulerPlugin", "scheduler": {"id": "s"}}
    write_trace(tmp_path / "mine-SchedulerPlugin-a-scheduler.msgpack", *joined, **header)
    header = {"run": "mine", "plugin": "TracePlugin", "boot_id": "another"}
    for name, address in (("whole", "tcp://1"), ("cut", "tcp://2")):
        header["worker"] = {"label": name, "address": address}
        path = tmp_path / f"mine-TracePlugin-{name}.received.msgpack"
        write_trace(path, *EVENTS, **header)
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\xc1dasfpf")])  # without the closing frame
    text = flat(info(tmp_path))
    state = "still being written on another host, or ended without closing"
    assert f"lost mine-TracePlugin-cut.received.msgpack: {state}. What its process had not" in text
    assert "4 workers without a file: tcp://3, tcp://4, tcp://5 and 1 more." in text


def test_what_recorders_lost(tmp_path: Path) -> None:
    path = tmp_path / "mine.msgpack"
    with FileDatabase(path) as database:
        database.record(EVENTS[0])
        database.writer.losses.add("too fast", 1234)
        database.writer.losses.errors = 5
    text = flat(info(path))
    assert "lost mine.msgpack: dropped during recording: 1,234 facts: 1,234 came faster" in text
    assert "lost mine.msgpack: 5 errors during recording." in text


def test_events_that_only_a_later_version_knows(tmp_path: Path) -> None:
    events = (*EVENTS, InstantEvent("Pause", 1002.0))
    theirs = write_trace(tmp_path / "theirs.msgpack", *events, plugin="TracePlugin")
    mine = write_trace(tmp_path / "mine.msgpack", *events)
    line = "1 event of kinds that this version of dasfprof does not know: Pause (1)."
    assert f"lost theirs.msgpack: {line}" in flat(info(theirs))
    assert "does not know" not in flat(info(mine))


def test_a_file_whose_writer_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from dasfprof import FileDatabase, InstantEvent\n"
        "database = FileDatabase(sys.argv[1]); database.record(InstantEvent('mine', 1.0))\n"
        "database.commit(); os._exit(1)"
    )
    path = tmp_path / "killed.msgpack"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    text = flat(info(path))
    assert ", ended without closing, " in text
    assert "events mine 1" in text


UNCLEAR = "still being written on another host, or ended without closing"


@pytest.mark.parametrize(
    ("header", "state"),
    [
        ({}, "still being written"),
        (
            {"process_started": 1.0},
            "ended without closing",
        ),  # its PID now belongs to another process
        ({"pid": 1 << 22}, "ended without closing"),
        ({"pid_namespace": "pid:[1]"}, UNCLEAR),
        ({"boot_id": "another"}, UNCLEAR),
        ({"process_started": None}, UNCLEAR),
    ],
)
def test_a_process_is_told_by_more_than_its_number(
    tmp_path: Path, header: dict[str, object], state: str
) -> None:
    with FileDatabase(tmp_path / "mine.msgpack", header=header) as database:
        database.record(EVENTS[0])
        database.commit()
        assert f", {state}, " in flat(info(tmp_path))


def test_a_cut_and_a_damaged_file(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "cut.msgpack", *EVENTS, pid=1 << 22)
    path.write_bytes(path.read_bytes()[:-20])
    text = flat(info(path))
    assert "ended without closing" in text
    assert "bytes at the truncated end" in text
    path = write_trace(tmp_path / "damaged.msgpack", *EVENTS)
    data = bytearray(path.read_bytes())
    tasks = [found.start() for found in re.finditer(rb"\xc1dasfpf\n", data)][1]
    data[tasks + 50 : tasks + 54] = b"\0\0\0\0"
    path.write_bytes(bytes(data))
    text = flat(info(path))
    assert " corrupt bytes, 0 bytes at the truncated end" in text
    assert "events Managed Memory 2" in text


def test_a_file_of_dasf(tmp_path: Path) -> None:
    path = tmp_path / "Tutorial_5-TracePlugin-c096.msgpack"
    event = {"name": "Compute", "timestamp": 50.0, "duration": 2.0, "phase": "X"}
    event |= {"process_id": "c096", "thread_id": "worker-c096-0", "args": {"key": "a"}}
    packed = msgpack.packb(event)
    path.write_bytes((len(packed).to_bytes(8, "big") + packed) * 2 + b"\0\0\0")
    text = flat(info(path))
    assert "recorded 0 s, on clocks that started with their host" in text
    assert "DASF's format" in text
    assert "events Compute 2" in text
    assert "the last 3 bytes are not a complete event" in text


def test_a_directory_of_several_runs(tmp_path: Path) -> None:
    for number, name in enumerate(["first", "second"]):
        header = {"run": name, "run_uuid": name, "run_created": 1000.0 + number}
        for plugin in ("TracePlugin", "ResourceMonitor"):
            write_trace(tmp_path / f"{name}-{plugin}-h-0.msgpack", **header)
    result = info(tmp_path)
    rows = [line.split()[:4] for line in result.stdout.splitlines()]
    second, first = (row for row in rows if row[:1] in (["first"], ["second"]))
    assert second == ["second", "1970-01-01", "00:16:41", "2"]
    assert first == ["first", "1970-01-01", "00:16:40", "2"]
    assert "Run first" in info(tmp_path / "first").stdout
    assert "Run second" in result.stdout, "the newest is shown besides"
    assert "Run first" not in result.stdout
    told = " ".join(result.stderr.split())
    assert "1 other run. The newest, 'second', is opened. To choose" in told


def test_hostile_headers_and_names(tmp_path: Path) -> None:
    header = {"run": "\x1b[2J" + "r" * 100_000, "plugin": "\r\n", "host": ["\x1b"], "pid": "\x1b"}
    header |= {"created": "soon", "run_created": float("nan")}
    header |= {"worker": {"label": "\u202e"}, "versions": {"dask": "\x1b[0m"}}
    event = InstantEvent("\x1b]0;owned\x07" + "n" * 100_000, 1000.0)
    path = write_trace(tmp_path / "a\x1b[31m\n.msgpack", event, **header)
    for source in (path, tmp_path):
        result = info(source)
        assert result.exit_code == 0
        assert all(line.isprintable() for line in result.stdout.split("\n"))
        assert max(map(len, result.stdout.splitlines())) <= 100


def test_times_that_are_none(tmp_path: Path) -> None:
    """Files of earlier versions may have any values as times."""
    times = (1000.0, float("nan"), float("inf"), 10**400, "soon", None, 1003)
    database = FileDatabase(tmp_path / "mine.msgpack")
    source = Source.from_schema(Schema("I", "mine", (("timestamp", "value"),), ()))
    database.writer.add_source(source)
    source.rows.extend((time,) for time in times)
    database.close()
    text = flat(info(database.path))
    assert "1970-01-01 00:16:40 UTC, 3 s" in text
    assert "events mine 7" in text


@pytest.mark.parametrize("value", [1, "x", None, [], {"label": 3}])
def test_headers_of_other_forms(value: object, tmp_path: Path) -> None:
    names = ("run", "plugin", "host", "pid", "worker", "scheduler", "versions", "boot_id")
    for name in names:
        path = write_trace(tmp_path / f"{name}.msgpack", EVENTS[0], **{name: value})
        assert info(path).exit_code == 0


def test_segments_and_those_that_are_missing(tmp_path: Path) -> None:
    header = {"plugin": "TracePlugin", "run": "mine", "run_uuid": "0f" * 16}
    database = FileDatabase(tmp_path / "t.msgpack", 1, header=header, segment_size=1)
    for number in range(3):
        database.record(InstantEvent("tick", 1000.0 + number))
    database.close()
    first, second, *_ = database.paths
    second.unlink()
    told = flat(info(tmp_path))
    assert f"{first.name} file TracePlugin" in told
    assert "segment 1, continued in the next segment" in told
    assert "segment 2 is missing: what its process recorded from" in told
    assert "closed cleanly" in told
