"""Files that are missing or truncated when their writer continues: lost events are counted."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli
from dasfprof.database import FileDatabase, open_run
from dasfprof.schema.events import InstantEvent

HEADER = {"plugin": "SchedulerPlugin", "run": "mine", "run_uuid": "0f" * 16}


def record(database: FileDatabase, first: int, count: int) -> None:
    """Record events in a block."""
    for number in range(first, first + count):
        database.record(InstantEvent("tick", 1000.0 + number, args={"number": number}))
    database.commit()


def numbers_in(source: Path) -> list[int]:
    return [event.args["number"] for event in open_run(source).get_traces()]


def info(source: Path) -> str:
    result = CliRunner().invoke(cli, ["info", str(source)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def lost_events(source: Path) -> list[str]:
    trace = TraceAnalyser(source, progress=False).trace
    return [note.text for note in trace.notes if note.kind == "lost-events"]


def remove(path: Path) -> None:
    path.unlink()


def remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def cut_behind_a_block(path: Path) -> None:
    """Truncate a file after the header and one block."""
    data = path.read_bytes()
    os.truncate(path, [at for at in range(len(data)) if data.startswith(b"\xc1dasfpf", at)][2])


def cut_within_a_block(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


LOSSES = [(remove, 30), (remove_directory, 30), (empty, 30)]
LOSSES += [(cut_behind_a_block, 20), (cut_within_a_block, 10)]


@pytest.mark.parametrize(("lose", "gone"), LOSSES)
def test_a_file_of_user_code_keeps_its_name(
    tmp_path: Path, lose: Callable[[Path], None], gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    database = FileDatabase(tmp_path / "t.msgpack", flush_interval=1e300)
    for first in (0, 10, 20):
        record(database, first, 10)
    lose(database.path)
    record(database, 30, 5)
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.msgpack"]
    assert numbers_in(database.path) == [*range(30 - gone), *range(30, 35)]
    if lose in (remove, remove_directory):
        before = database.trace_file().read_header()["before"]
        assert (before["blocks"], before["events"], before["gone"]) == (3, 30, True)
    assert "removed, moved, truncated or unmounted. 30 events in 3 blocks had been" in caplog.text
    assert f"lost {gone} events that had been written are missing" in info(tmp_path)
    (text,) = lost_events(tmp_path)
    assert text.startswith(f"{gone} events that had been written are missing")


@pytest.mark.parametrize(("lose", "gone"), LOSSES)
def test_a_file_of_a_run_goes_on_in_the_next_segment(
    tmp_path: Path, lose: Callable[[Path], None], gone: int
) -> None:
    database = FileDatabase(
        tmp_path / "t.msgpack", flush_interval=1e300, header=HEADER, segment_size=10**6
    )
    for first in (0, 10, 20):
        record(database, first, 10)
    lose(database.path)
    record(database, 30, 5)
    record(database, 35, 5)
    database.close()
    assert [path.name for path in database.paths] == ["t.msgpack", "t.segment0002.msgpack"]
    assert numbers_in(tmp_path) == [*range(30 - gone), *range(30, 40)]
    assert f"lost {gone} events that had been written are missing" in info(tmp_path)
    assert "ended without closing" not in info(tmp_path)
    # Only a part of the file is read for a window, so nothing is claimed about the remainder.
    assert not lost_events(open_run(tmp_path, between=(1000, 1001)))  # type: ignore[arg-type]


def test_a_whole_segment_that_is_gone_is_counted(tmp_path: Path) -> None:
    database = FileDatabase(
        tmp_path / "t.msgpack", flush_interval=1e300, header=HEADER, segment_size=1
    )
    for first, count in ((0, 7), (7, 11), (18, 13)):
        record(database, first, count)
    database.close()
    assert not lost_events(tmp_path)
    database.paths[1].unlink()
    assert "lost 11 events that had been written" in info(tmp_path)


def test_what_was_lost_before_anything_was_written_is_no_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = FileDatabase(tmp_path / "run" / "t.msgpack", header=HEADER, segment_size=10**6)
    database.writer.create()
    shutil.rmtree(tmp_path / "run")
    record(database, 0, 3)
    database.close()
    assert numbers_in(tmp_path / "run") == [0, 1, 2]
    assert not lost_events(tmp_path / "run")
    assert not caplog.messages


def test_a_disk_that_is_unmounted_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, other = tmp_path / "disk", tmp_path / "other"
    disk.mkdir()
    other.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here: that takes root")
    database = FileDatabase(
        disk / "t.msgpack", flush_interval=1e300, header=HEADER, segment_size=10**6
    )
    try:
        record(database, 0, 30)
        # The disk is moved elsewhere, and its directory exists but is empty.
        subprocess.run(["mount", "--bind", str(disk), str(other)], check=True)
        subprocess.run(["umount", str(disk)], check=True)
        record(database, 30, 10)
        assert "was removed, moved, truncated or unmounted. 30 events in 1 block" in caplog.text
        assert "lost 30 events that had been written" in info(disk)
        # It returns at that directory.
        subprocess.run(["mount", "--bind", str(other), str(disk)], check=True)
        record(database, 40, 5)
        database.close()
        assert numbers_in(disk) == [*range(30), *range(40, 45)]
        assert "lost 10 events that had been written" in info(disk)
    finally:
        for place in (disk, other):
            subprocess.run(["umount", "-l", str(place)], capture_output=True)
