"""Recording survives full, slow or missing disks, and processes that fork or die."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trace_by_format
from click.testing import CliRunner
from clusters import wait_until

from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli
from dasfprof.database import FileDatabase, open_run, output, writer
from dasfprof.database.output import TraceOutput
from dasfprof.database.reader import TraceFile
from dasfprof.database.writer import Source, TraceWriter
from dasfprof.errors import CannotWriteError, ReadOnlyError
from dasfprof.schema.events import Event, InstantEvent, Schema

SCHEMA = Schema("I", "n", (("timestamp", "float"),), (("number", "int"),))


@pytest.fixture(autouse=True)
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    caplog.set_level(logging.INFO, logger="dasfprof")
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda log: texts.append(log.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dasfprof.database").addHandler(handler)
    yield texts
    logging.getLogger("dasfprof.database").removeHandler(handler)


def numbers_in(database: FileDatabase) -> list[int]:
    return [event.args["number"] for event in database.get_traces()]


def record(database: FileDatabase, numbers: range, noise: int = 0) -> None:
    """Record an event per number, each with this many bytes that cannot be compressed."""
    drawn = random.Random(1)
    for number in numbers:
        more = {"noise": drawn.randbytes(noise)} if noise else {}
        database.record(InstantEvent("n", float(number), args={"number": number, **more}))


def read_through(database: FileDatabase) -> TraceFile:
    """Return the file after reading all blocks, so that its end and dropped events are known."""
    trace = database.trace_file()
    list(trace.batches())
    return trace


def in_threads(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_directory_that_is_replaced_costs_facts_and_nothing_else(
    tmp_path: Path, messages: list[str]
) -> None:
    run = tmp_path / "run"
    database = FileDatabase(run / "t.msgpack")
    record(database, range(1))
    shutil.rmtree(run)
    run.write_text("not a directory")
    for first in (1, 5, 10):
        record(database, range(first, first + 5))
        database.commit()
    assert database.writer.losses.dropped == 15 + 1
    run.unlink()
    record(database, range(15, 20))
    database.close()
    trace = read_through(database)
    assert numbers_in(database) == [15, 16, 17, 18, 19]
    assert (trace.dropped, trace.dropped_by) == (16, {"disk gone": 16})
    assert trace.end is not None and trace.end["events"] == 21
    while_gone, at_the_end = messages
    for words in ("cannot write facts to the trace", f"{run}/t.msgpack", "; 6 dropped so far"):
        assert words in while_gone
    assert "it lacks 16 facts: 16 could not be written" in at_the_end


@pytest.mark.parametrize("in_the_way", ["file", "file above", "no permission"])
def test_a_file_that_cannot_be_created_is_an_error_at_the_call(
    tmp_path: Path, messages: list[str], in_the_way: str
) -> None:
    """The error is one of the package's and an OSError. Recording starts once it is possible."""
    run = tmp_path / "run"
    path = run / "deeper" / "t.msgpack" if in_the_way == "file above" else run / "t.msgpack"
    if in_the_way == "no permission":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        run.mkdir(mode=0o500)
    else:
        run.write_text("not a directory")
    database = FileDatabase(path)
    for _ in range(2):
        with pytest.raises(
            CannotWriteError, match=r"t\.msgpack: .*directory that this process"
        ) as caught:
            record(database, range(1))
        assert isinstance(caught.value, OSError)
    run.rmdir() if run.is_dir() else run.unlink()
    record(database, range(3))
    database.close()
    assert numbers_in(database) == [0, 1, 2]
    assert messages == []


def test_start_tells_at_once_whether_the_file_can_be_made(
    tmp_path: Path, messages: list[str]
) -> None:
    (tmp_path / "run").write_text("not a directory")
    database = FileDatabase(tmp_path / "run" / "t.msgpack")
    database.writer.start(Source.from_schema(SCHEMA))
    assert len(messages) == 1
    with pytest.raises(OSError, match="run"):
        database.writer.create()
    (tmp_path / "run").unlink()
    database.writer.sources[0].rows.append((1.0, 7))
    database.close()
    assert numbers_in(database) == [7]
    assert database.trace_file().read_header()["version"] == 3


@pytest.fixture(params=["256k"])
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here: that takes root")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_disk_that_others_fill_and_that_stays_full(small_disk: Path) -> None:
    """The trace, `info` and the data notes report dropped events, for which space was reserved."""
    database = FileDatabase(small_disk / "t.msgpack")
    record(database, range(100))
    database.commit()
    fill(small_disk / "filler")
    for first in range(100, 3100, 100):
        record(database, range(first, first + 100))
        database.commit()
    database.close()
    lost = database.writer.losses.dropped
    assert 0 < lost < 3000
    assert_told(database, 3100, lost)

    facts = f"{lost:,} facts: {lost:,} found the disk full"
    info = CliRunner().invoke(cli, ["info", str(database.path)]).stdout
    assert facts in " ".join(info.split())
    notes = {note.kind: note.text for note in TraceAnalyser(database).trace.notes}
    assert facts in notes["dropped-facts"]


def fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))


def assert_told(database: FileDatabase, recorded: int, lost: int) -> None:
    """Assert that the trace has the first events and reports the others as dropped."""
    assert numbers_in(database) == [*range(recorded - lost)]
    trace = read_through(database)
    assert not trace.damage
    assert (trace.dropped, trace.dropped_by) == (lost, {"disk full": lost})
    end = trace_by_format.read(database.path.read_bytes()).frames[-1]
    assert (end["kind"], end["events"], end["dropped"]) == ("end", recorded, lost)


def test_a_disk_on_which_no_room_can_be_reserved(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: the trace stops early enough to write the number of dropped events."""
    monkeypatch.setattr(output, "_allocate", lambda *_: False)
    database = FileDatabase(small_disk / "t.msgpack", flush_interval=3600)
    for first in range(0, 1000, 50):
        record(database, range(first, first + 50), noise=500)
        database.commit()
    database.close()
    assert 0 < database.writer.losses.dropped < 1000
    assert_told(database, 1000, database.writer.losses.dropped)


@pytest.mark.parametrize("small_disk", ["64k"], indirect=True)
@pytest.mark.parametrize(
    ("size", "kept"),
    # Blocks have 5000 events, and the last one 1000. At 30 bytes each, they have 150 and 30 kB.
    [(1, range(6000)), (30, range(5000, 6000)), (3000, range(0))],
)
def test_a_disk_that_is_smaller_than_a_block(small_disk: Path, size: int, kept: range) -> None:
    """Blocks that fit are written and can be read, and no thread waits for the others."""
    database = FileDatabase(small_disk / "t.msgpack", flush_interval=3600)
    record(database, range(5000), noise=size)
    database.commit()
    record(database, range(5000, 6000), noise=size)
    database.close()
    trace, lost = read_through(database), 6000 - len(kept)
    assert numbers_in(database) == [*kept]
    assert database.writer.losses.by_cause == ({"disk full": lost} if lost else {})
    assert (trace.dropped, trace.dropped_by) == (lost, database.writer.losses.by_cause)
    assert trace.end is not None
    assert not trace.damage


class FillingFile:
    """File on a disk with this many bytes of free space."""

    room = 0

    def __init__(self, file: Any) -> None:
        self.file = file

    def __enter__(self) -> FillingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def tell(self) -> int:
        return int(self.file.tell())

    def fileno(self) -> int:
        return int(self.file.fileno())

    def write(self, data: memoryview) -> int:
        if len(data) and FillingFile.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = int(self.file.write(data[: FillingFile.room]))
        FillingFile.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 7, 8, 19, 20, 300, 550, 600])
def test_a_disk_that_fills_up_within_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str], room: int
) -> None:
    """This includes the header, which is written again, because a file is unreadable without it."""
    plain_open = output._open
    monkeypatch.setattr(output, "_open", lambda path: FillingFile(plain_open(path)))
    FillingFile.room = room
    database = FileDatabase(tmp_path / "t.msgpack", header={"run": "r"})
    for number in range(4):
        record(database, range(number, number + 1))
        database.commit()
    lost = database.writer.losses.dropped
    assert lost > 0
    FillingFile.room = 10**6
    record(database, range(4, 6))
    database.close()

    trace = read_through(database)
    assert numbers_in(database) == [*range(4 - lost), 4, 5]
    assert trace.header["run"] == "r"
    assert trace.damage.corrupt_bytes <= room
    assert (trace.dropped, trace.dropped_by) == (lost, {"disk full": lost})
    assert trace.end is not None and trace.end["events"] == 6
    while_full, at_the_end = messages
    assert "No space left on device" in while_full
    assert f"it lacks {lost:,} facts: {lost:,} found the disk full" in at_the_end
    independent = trace_by_format.read(database.path.read_bytes())
    assert [args["number"] for *_, args in independent.events] == numbers_in(database)


IMPORTS = """
import multiprocessing, os, resource, signal, sys
from dasfprof.database import FileDatabase, writer
from dasfprof.schema.events import InstantEvent
"""


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", IMPORTS + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


QUOTA = """
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 100_000))
database = FileDatabase(sys.argv[1])
for number in range(100):
    database.record(InstantEvent("n", 1.0, args={"number": number, "x": str(number) * 200}))
    database.commit()
lost = database.writer.losses.dropped
assert 0 < lost < 100, lost
if sys.argv[2] == "raised":
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    database.record(InstantEvent("n", 1.0, args={"number": 100, "x": ""}))
database.close()
print(lost)
"""


@pytest.mark.parametrize("limit", ["raised", "kept"])
def test_a_quota_that_the_kernel_keeps(tmp_path: Path, limit: str) -> None:
    done = run_script(QUOTA, str(tmp_path / "t.msgpack"), limit)
    lost, database = int(done.stdout), FileDatabase(tmp_path / "t.msgpack")
    assert numbers_in(database) == [*range(100 - lost), *([100] if limit == "raised" else [])]
    trace = read_through(database)
    assert (trace.dropped, trace.dropped_by) == (lost, {"disk full": lost})
    assert not trace.damage
    assert done.stderr.count("cannot write facts") == 1


def hanging_disk(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let disks wait for the first event, and set the second event when they are used."""
    answer, asked = threading.Event(), threading.Event()
    plain_append = TraceOutput.append

    def append(output: TraceOutput, *block: Any) -> None:
        asked.set()
        assert answer.wait(60)
        plain_append(output, *block)

    monkeypatch.setattr(TraceOutput, "append", append)
    return answer, asked


def test_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """Recording continues at once, keeps events up to its limit, and counts dropped events."""
    answer, asked = hanging_disk(monkeypatch)
    monkeypatch.setattr(writer, "PATIENCE", 0.05)
    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=3600, max_pending=100)
    record(database, range(10))
    assert asked.wait(60)
    (source,) = database.writer.sources
    for first in range(10, 5010, 10):
        record(database, range(first, first + 10))
        assert len(source.rows) <= 100
    # The ten events that the disk has received may still be written.
    assert database.writer.losses.dropped == 4900
    assert not answer.is_set()

    answer.set()
    database.commit()
    record(database, range(5010, 5015))
    database.close()
    assert numbers_in(database) == [*range(110), *range(5010, 5015)]
    assert next(database.trace_file().batches()).rows == 10
    trace = read_through(database)
    assert (trace.dropped, trace.dropped_by) == (4900, {"disk gone": 4900})
    meanwhile, at_the_end = messages
    assert "cannot write facts" in meanwhile and "the disk does not answer" in meanwhile
    assert "4,900 facts: 4,900 could not be written: the disk or the directory" in at_the_end


def test_facts_that_lie_flat_are_taken_and_dropped_whole(tmp_path: Path) -> None:
    taken: list[Any] = []
    busy, go_on = threading.Event(), threading.Event()

    def fold(rows: list[Any]) -> Any:
        taken.append(rows)
        busy.set()
        assert go_on.wait(60)
        return []

    database = FileDatabase(tmp_path / "t.msgpack", 1, flush_interval=3600, max_pending=10)
    source = Source(fold, width=3)
    database.writer.add_source(source)
    try:
        for number in range(26):
            source.rows.extend((number, "fact", number))
            database.writer.threshold_reached(source)
            assert busy.wait(60)  # the writer has taken the first event
        assert source.rows == [item for number in range(1, 11) for item in (number, "fact", number)]
        assert database.writer.losses.dropped == 15
    finally:
        go_on.set()
    database.close()
    assert taken[0] == [0, "fact", 0]
    assert [len(rows) % 3 for rows in taken] == [0] * len(taken)
    assert sum(len(rows) for rows in taken) == 33
    assert source.rows == []


def test_user_code_waits_for_room_and_loses_nothing(tmp_path: Path) -> None:
    """Many threads are always faster than the writer. The order of each is kept."""
    most = 50
    database = FileDatabase(tmp_path / "t.msgpack", most, flush_interval=0.001, max_pending=most)
    unwritten: list[int] = []

    def work(thread: int) -> None:
        for number in range(1500):
            event = InstantEvent("n", 1.0, thread_id=thread, args={"number": number})
            database.record(event)
            (source,) = database.writer.sources
            unwritten.append(len(source.rows))

    in_threads(*(partial(work, number) for number in range(4)))
    database.close()
    numbers: dict[Any, list[int]] = {number: [] for number in range(4)}
    for event in database.get_traces():
        numbers[event.thread_id].append(event.args["number"])
    assert numbers == {thread: [*range(1500)] for thread in range(4)}
    assert database.writer.losses.dropped == 0
    assert max(unwritten) <= most + 4


def test_what_is_being_written_counts_as_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies loses events that its writer has taken, and those recorded meanwhile."""
    answer, asked = hanging_disk(monkeypatch)
    monkeypatch.setattr(writer, "PATIENCE", 60.0)
    database = FileDatabase(tmp_path / "t.msgpack", 100, flush_interval=0.001)
    record(database, range(60))
    assert asked.wait(60)
    unwritten: list[int] = []
    plain = TraceWriter.make_room

    def make_room(self: TraceWriter, source: Source) -> None:
        unwritten.append(len(source.rows) + source.in_flight)
        plain(self, source)

    monkeypatch.setattr(TraceWriter, "make_room", make_room)
    more = threading.Thread(target=record, args=(database, range(60, 140)))
    more.start()
    wait_until(lambda: unwritten or not more.is_alive())
    assert unwritten == [100], "who records the hundredth waits, and no other does"
    assert more.is_alive()
    answer.set()
    more.join()
    database.close()
    assert numbers_in(database) == [*range(140)]


def test_rows_of_other_threads_are_not_dropped_once_there_was_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come between the check for space and the return, and wait for space themselves."""
    plain = TraceWriter._has_room
    others = [InstantEvent("n", 1.0, args={"number": number}) for number in range(100, 130)]

    def has_room(self: TraceWriter, source: Source) -> bool:
        found = plain(self, source)
        if found and others:
            source.rows.extend(others)
            others.clear()
        return found

    monkeypatch.setattr(TraceWriter, "_has_room", has_room)
    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=3600, max_pending=10)
    record(database, range(10))
    database.close()
    assert database.writer.losses.dropped == 0
    assert sorted(numbers_in(database)) == [*range(10), *range(100, 130)]


def test_closing_writes_more_than_may_be_pending(tmp_path: Path) -> None:
    """Events that the last drain left would be lost without being counted."""
    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=3600, max_pending=10)
    writer = database.writer
    closing = threading.Thread(target=database.close)
    record(database, range(5))
    with writer._drain_lock:  # no event is drained before it closes
        writer.sources[0].rows.extend(
            InstantEvent("n", 1.0, args={"number": number}) for number in range(100, 135)
        )
        closing.start()
        wait_until(lambda: not (writer._thread and writer._thread.is_alive()))
    closing.join()
    assert writer.losses.dropped == 0
    assert sorted(numbers_in(database)) == [*range(5), *range(100, 135)]


def test_who_records_writes_where_no_thread_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """If a process cannot start threads, recording does not wait for one, or blame the disk."""

    def cannot_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=3600, max_pending=20)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match="new thread"):
            record(database, range(1))
    record(database, range(100))
    assert numbers_in(FileDatabase(database.path)) == [*range(100)]
    database.close()
    assert database.writer.losses.dropped == 0
    assert messages == []


def test_a_log_handler_that_records_does_not_wait_for_its_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """The writer's thread logs dropped events, and the log handler fills the list."""
    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=3600, max_pending=20)
    plain, threads = database.writer.losses.warn, []

    def warn(*told: Any, **how: Any) -> None:
        if not threads:
            threads.append(threading.current_thread().name)
            record(database, range(10, 40))
        plain(*told, **how)

    monkeypatch.setattr(database.writer.losses, "warn", warn)
    database.writer.losses.add("too fast")
    record(database, range(10))
    wait_until(lambda: threads)
    database.close()
    assert threads[0].startswith("dasfprof-writer")
    assert "does not answer" not in "".join(messages)
    assert numbers_in(database) == [*range(30)]
    assert database.writer.losses.by_cause == {"too fast": 11}


def test_hooks_do_not_wait_and_each_fact_is_written_or_counted(
    tmp_path: Path, messages: list[str]
) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", 2, flush_interval=0.0001, max_pending=3)
    writer, source = database.writer, Source.from_schema(SCHEMA)
    writer.add_source(source)

    def hook() -> None:
        for number in range(3000):
            source.rows.append((1.0, number))
            writer.threshold_reached(source)

    in_threads(*[hook] * 4)
    database.close()
    lost = writer.losses.dropped
    assert lost > 0
    assert len(numbers_in(database)) + lost == 4 * 3000
    trace = read_through(database)
    assert (trace.dropped, trace.dropped_by) == (lost, {"too fast": lost})
    meanwhile, at_the_end = messages
    assert "come faster than they can be written" in meanwhile
    assert f"it lacks {lost:,} facts: {lost:,} came faster than they could be" in at_the_end


def writer_of(tmp_path: Path, source: Source, rows: Iterable[Any]) -> TraceWriter:
    """Write rows of a source to a file, and return its closed writer."""
    writer = FileDatabase(tmp_path / "t.msgpack", flush_interval=1e300).writer
    writer.add_source(source)
    source.rows.extend(rows)
    writer.close()
    return writer


def test_a_bad_row_is_left_out_alone(tmp_path: Path, messages: list[str]) -> None:
    bad: dict[int, Any] = {3: "text", 4: None, 300: 2**63, 999: [1]}
    rows = [*((1.0, bad.get(number, number)) for number in range(1000)), (1.0,)]
    writer = writer_of(tmp_path, Source.from_schema(SCHEMA), rows)
    written = trace_by_format.read(writer.path.read_bytes())
    good = [number for number in range(1000) if number not in bad]
    assert [args["number"] for *_, args in written.events] == good
    assert [position for position, *_ in written.events] == good
    assert (written.frames[-1]["dropped"], written.frames[-1]["errors"]) == (5, 5)
    assert len(messages) == 2
    assert "cannot encode facts" in messages[0]


def test_a_block_of_bad_rows_alone_is_no_block(tmp_path: Path, messages: list[str]) -> None:
    keys = Schema("I", "n", (("timestamp", "float"),), (("keys", "keys"),))
    writer = writer_of(tmp_path, Source.from_schema(keys), [(1.0, None), (1.0, 5)])
    assert not writer.path.exists()
    assert (writer.losses.dropped, writer.losses.errors) == (2, 2)
    assert len(messages) == 2


def test_a_fold_that_fails_costs_its_slice(tmp_path: Path, messages: list[str]) -> None:
    def fold(rows: list[Any]) -> Any:
        if 1300 in rows:
            raise RuntimeError("a bug")
        yield SCHEMA, [(1.0, row) for row in rows], range(len(rows))

    def finish() -> Any:
        raise RuntimeError("another")

    writer = writer_of(tmp_path, Source(fold, finish=finish), range(4000))
    written = trace_by_format.read(writer.path.read_bytes())
    assert [args["number"] for *_, args in written.events] == [*range(1000), *range(2000, 4000)]
    assert (written.frames[-1]["dropped"], written.frames[-1]["errors"]) == (1000, 2)
    assert written.frames[-1]["dropped_by"] == {"recorder failed": 1000}
    assert len(messages) == 2


def test_memory_that_there_is_not_is_no_bad_value(tmp_path: Path) -> None:
    def fold(rows: list[Any]) -> Any:
        raise MemoryError

    writer = writer_of(tmp_path, Source(fold), range(3))
    assert writer.losses.by_cause == {"no memory": 3}


def test_ctrl_c_while_rows_are_written_is_counted(tmp_path: Path) -> None:
    def fold(rows: list[Any]) -> Any:
        if 300 in rows:
            raise KeyboardInterrupt
        yield SCHEMA, [(1.0, row) for row in rows], range(len(rows))

    database, source = FileDatabase(tmp_path / "t.msgpack", flush_interval=1e300), Source(fold)
    database.writer.add_source(source)
    source.rows.extend(range(1000))
    with pytest.raises(KeyboardInterrupt):
        database.commit()
    source.rows.append(1000)
    database.close()
    assert database.writer.losses.by_cause == {"interrupted": 1000}
    assert numbers_in(database) == [1000]


FORK = """
database = FileDatabase(sys.argv[1], 10, flush_interval=0.001)

def record(name, count):
    for _ in range(count):
        database.record(InstantEvent(name, 1.0))

def child():
    record("child", 50)
    database.commit()

record("before", 25)
for way in ("exit", "close"):
    record("pending", 5)
    if os.fork() == 0:
        child()
        if way == "close":
            database.close()
        own = FileDatabase(sys.argv[1] + "-" + way)
        own.record(InstantEvent("own", 1.0))
        sys.exit(0)
    assert os.wait()[1] == 0
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
record("after", 5)
"""


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    run_script(FORK, str(tmp_path / "t.msgpack"))
    names = {path.name: [event.name for event in open_run(path)] for path in tmp_path.iterdir()}
    assert names == {
        "t.msgpack": ["before"] * 25 + ["pending"] * 10 + ["after"] * 5,
        "t.msgpack-close": ["own"],
        "t.msgpack-exit": ["own"],
    }
    assert not FileDatabase(tmp_path / "t.msgpack").trace_file().damage


def test_a_process_that_ends_closes_its_file(tmp_path: Path) -> None:
    run_script(
        """
database = FileDatabase(sys.argv[1], flush_interval=1e300)
for number in range(7):
    database.record(InstantEvent("n", 1.0, args={"number": number}))
""",
        str(tmp_path / "t.msgpack"),
    )
    database = FileDatabase(tmp_path / "t.msgpack")
    assert numbers_in(database) == [*range(7)]
    trace = read_through(database)
    assert trace.end is not None
    assert not trace.damage


def test_closing_from_many_threads_is_closing_once(tmp_path: Path) -> None:
    database = FileDatabase(tmp_path / "t.msgpack")
    record(database, range(1000))
    ended: list[int] = []

    def close() -> None:
        database.close()
        ended.append(database.path.read_bytes().count(b"\xa4kind\xa3end"))

    in_threads(*[close] * 5)
    assert ended == [1] * 5
    assert len(numbers_in(database)) == 1000


def test_events_recorded_while_it_closes_do_no_harm(tmp_path: Path) -> None:
    # On a busy machine, the writer falls far behind, but must not drop events here.
    database = FileDatabase(tmp_path / "t.msgpack", 10, flush_interval=0.001, max_pending=1 << 40)
    refused = threading.Event()

    def go_on() -> None:
        for number in range(10**9):
            try:
                record(database, range(number, number + 1))
            except ReadOnlyError:
                refused.set()
                return

    thread = threading.Thread(target=go_on)
    thread.start()
    wait_until(lambda: database.path.exists())
    database.close()
    assert refused.wait(60)
    thread.join()
    events: list[Event] = [*database.get_traces()]
    assert [event.args["number"] for event in events] == [*range(len(events))]
