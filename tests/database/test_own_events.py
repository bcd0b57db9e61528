"""Events of user code: few are lost if a process dies, and invalid ones raise at the call."""

import math
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trace_by_format
from clusters import wait_until

from dasfprof import TraceAnalyser
from dasfprof.cli.contents import read_contents
from dasfprof.database import EventProfiler, FileDatabase
from dasfprof.errors import InvalidArgumentError, ReadOnlyError, SourceNotFoundError
from dasfprof.recording.settings import make_settings
from dasfprof.schema.events import CompleteEvent, Event, InstantEvent


def test_the_writer_sleeps_without_events_and_writes_the_next_in_time(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", flush_interval=0.01)
    for number in range(1, 6):
        database.record(InstantEvent("event", timestamp=float(number)))
        # Another database reads, which does not make the writer write.
        wait_until(lambda: len([*FileDatabase(tmp_path / "t.msgpack").get_traces()]) == number)  # noqa: B023
        wait_until(lambda: database.writer._asleep)
    before = database.writer._steps
    time.sleep(0.3)
    assert database.writer._asleep
    assert database.writer._steps == before
    database.close()


def many_names() -> list[Event]:
    """Return events most of which have different names, some of them used by dasfprof."""
    events: list[Event] = []
    for number in range(2000):
        name = "Compute" if number in (20, 1000) else f"step {number}"
        time, loss = 1.7e9 + number, {"loss": number / 2}
        if number % 3:
            events.append(CompleteEvent(name, time, 0.5, thread_id=number % 7, args=loss))
        else:
            phase = "R" if number % 2 else "I"
            args = {**loss, "key": ("x", number)} if number % 4 else {}
            events.append(InstantEvent(name, time, phase=phase, args=args))
        if number % 10 == 0:
            events.append(InstantEvent("often", time))
    return events


def test_events_with_names_of_their_own_share_blocks(tmp_path: Path) -> None:
    """A frame per event would take 0.2 ms. Readers of columns still get them by name."""
    events = many_names()
    database = FileDatabase(tmp_path / "x.msgpack")
    for event in events:
        database.record(event)
    database.close()
    assert [*database.get_traces()] == events

    read = trace_by_format.read(database.path.read_bytes())
    assert len(read.frames) < 30
    names = [(position, name) for position, _, name, _, _ in read.events]
    assert names == [*enumerate(event.name for event in events)]

    by_position = {}
    for batch in database.batches():
        of_batch = dict(batch.events())
        assert [*of_batch] == batch.sequence.tolist()
        assert {event.name for event in of_batch.values()} <= {batch.name}
        by_position.update(of_batch)
    assert [by_position[position] for position in range(len(events))] == events

    counts = read_contents(FileDatabase(database.path)).events
    assert (counts["often"], counts["Compute"], counts["step 7"]) == (200, 2, 1)
    analyser = TraceAnalyser(FileDatabase(database.path))
    own = [event for event in events if (event.name, event.phase) != ("Compute", "X")]
    assert [*analyser.trace.events["name"]] == [event.name for event in own]
    assert len(analyser.trace.tasks) == len(events) - len(own)


RECORD = """
import mmap, os, struct, sys, time
from dasfprof import EventProfiler

path, counter, rate, end = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
with open(counter, "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
profiler = EventProfiler(path)
begin = time.perf_counter()
for number in range(10**9):
    profiler.record_complete_event("epoch", 1.7e9 + number, 0.5, args={"number": number})
    shared[:] = struct.pack("<Q", number + 1)
    while rate * (time.perf_counter() - begin) < number:
        pass
    if end == "exit" and number == 12_345:
        os._exit(7)
"""


@pytest.mark.parametrize(("rate", "end"), [(30_000, "kill"), (1e9, "exit")])
def test_a_process_that_dies_loses_at_most_the_last_5000(
    tmp_path: Path, rate: float, end: str
) -> None:
    path, counter = tmp_path / "x.msgpack", tmp_path / "counter"
    counter.write_bytes(bytes(8))
    command = [sys.executable, "-c", RECORD, str(path), str(counter), str(rate), end]
    process = subprocess.Popen(command)

    def recorded() -> int:
        return int(struct.unpack("<Q", counter.read_bytes())[0])

    try:
        if end == "kill":
            wait_until(lambda: recorded() >= 23_000 or process.poll() is not None, every=0.001)
    finally:
        if end == "kill":
            process.send_signal(signal.SIGKILL)
        assert process.wait(60) == (7 if end == "exit" else -signal.SIGKILL)
    batches = list(FileDatabase(path).batches())
    numbers = [number for batch in batches for number in batch.args["number"].to_list()]
    assert numbers == [*range(len(numbers))]
    assert recorded() - 5000 <= len(numbers) <= recorded() + 1


APPENDS = """
import sys
from dasfprof import EventProfiler

profiler = EventProfiler(sys.argv[1])
print("made", flush=True)
sys.stdin.readline()
for number in range(200):
    profiler.record_instant_event(sys.argv[2], float(number))
profiler.close()
"""


def test_two_processes_that_begin_one_file_get_a_file_each(tmp_path: Path) -> None:
    path, pipe = tmp_path / "x.msgpack", subprocess.PIPE
    commands = [[sys.executable, "-c", APPENDS, str(path), name] for name in ("one", "two")]
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for command in commands
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
    told = "".join(process.communicate("go\n", timeout=240)[1] for process in processes)
    assert sorted(os.listdir(tmp_path)) == ["x-2.msgpack", "x.msgpack"]
    names = [
        [event.name for event in FileDatabase(file).get_traces()] for file in tmp_path.iterdir()
    ]
    assert sorted(names) == [["one"] * 200, ["two"] * 200]
    assert told.count("another process has created") == 1
    with pytest.raises(
        ReadOnlyError, match=r"only the process that created.*Record into a new file"
    ):
        EventProfiler(path).record_instant_event("three", 1.0)


@pytest.mark.parametrize(
    "event",
    [
        InstantEvent("n", "yesterday"),  # type: ignore[arg-type]
        InstantEvent("n", None),  # type: ignore[arg-type]
        InstantEvent("n", True),
        CompleteEvent("n", 1.0, -1.0),
        CompleteEvent("n", 1.0, math.nan),
        CompleteEvent("n", 1.0, "1"),  # type: ignore[arg-type]
        InstantEvent("n", 1.0, args=[("a", 1)]),  # type: ignore[arg-type]
        InstantEvent(5, 1.0),  # type: ignore[arg-type]
        "no event",
    ],
    ids=repr,
)
def test_bad_events_are_refused_at_the_call(tmp_path: Path, event: Any) -> None:
    database = FileDatabase(tmp_path / "t.msgpack")
    with pytest.raises(InvalidArgumentError, match="expected an event such as InstantEvent"):
        database.record(event)
    database.close()
    assert os.listdir(tmp_path) == []


def test_a_missing_duration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"duration=None.* non-negative"):
        EventProfiler(tmp_path / "t.msgpack").record_complete_event("n", 1.0)


@pytest.mark.parametrize("option", ["commit_threshold", "max_pending"])
@pytest.mark.parametrize("value", ["x", "5000", 2.5, True])
def test_settings_that_are_no_whole_numbers_are_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{option}={value!r} must be an integer"):
        make_settings(**{option: value})


@pytest.mark.parametrize(
    "options",
    [{"name": "a\0b"}, {"name": "n" * 101}, {"directory": 5}, {"directory": "a\0b"}],
    ids=repr,
)
def test_names_that_no_file_can_have_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(options))}="):
        make_settings(**options)


@pytest.mark.parametrize("path", [5, b"mine.msgpack", "a\0b"], ids=repr)
def test_what_is_no_file_s_name_is_refused(path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"file names?"):
        EventProfiler(path)


def test_switches_are_true_or_false() -> None:
    value: Any
    for value in ("yes", "no", 1, 0):
        with pytest.raises(InvalidArgumentError, match=f"add_time_suffix={value!r} must be True"):
            make_settings(add_time_suffix=value)
        with pytest.raises(InvalidArgumentError, match=f"enable_nvtx={value!r} must be True"):
            make_settings(enable_nvtx=value)
    assert make_settings(name="n", add_time_suffix=False).name == "n"
    assert make_settings().enable_nvtx is False


def test_reading_a_name_that_is_not_there_creates_no_file(tmp_path: Path) -> None:
    for name in ("training.msgpack", "other.msgpack"):
        with FileDatabase(tmp_path / name) as database:
            database.record(InstantEvent("n", 1.0))
    profiler = EventProfiler(tmp_path / "trainig.msgpack")
    for read in (profiler.get_traces, profiler.batches):
        with pytest.raises(SourceNotFoundError, match=r"there is no trace file .*trainig"):
            read()
    with pytest.raises(InvalidArgumentError, match=r"is a directory\. Pass a file in it"):
        EventProfiler(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["other.msgpack", "training.msgpack"]
