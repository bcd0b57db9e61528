"""Finding a run's files: by file, directory, glob, name and prefix of a name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from dasfprof.database import EventProfiler, FileDatabase, MultiEventDatabase, find_runs, open_run
from dasfprof.errors import InvalidArgumentError, NotATraceError, SourceNotFoundError
from dasfprof.schema.events import InstantEvent

PLUGINS = ("TracePlugin-host-0", "TracePlugin-host-1", "SchedulerPlugin-host-scheduler")


def write(path: Path, event: str, **header: object) -> Path:
    with FileDatabase(path, new=True, header=dict(header)) as database:
        database.record(InstantEvent(event, 1.0))
    return database.path


def write_run(directory: Path, name: str, uuid: str, created: float) -> list[Path]:
    """Write a file per plugin, with one event whose name has the run and the plugin."""
    facts = {"run": name, "run_uuid": uuid, "run_created": created}
    paths = {plugin: directory / f"{name}-{plugin}.msgpack" for plugin in PLUGINS}
    return [write(path, f"{uuid} {plugin}", **facts) for plugin, path in paths.items()]


def names(database: MultiEventDatabase) -> list[str]:
    return sorted(event.name for event in database)


def names_of(uuid: str) -> list[str]:
    return sorted(f"{uuid} {plugin}" for plugin in PLUGINS)


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    write_run(tmp_path, "Tutorial", "1", 100.0)
    write_run(tmp_path, "Other", "2", 200.0)
    return tmp_path


def test_a_file_a_glob_a_name_and_the_begin_of_one(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = two_runs / "Other-TracePlugin-host-0.msgpack"
    assert names(open_run(path)) == names(open_run(str(path))) == ["2 TracePlugin-host-0"]
    of_workers = [f"{uuid} TracePlugin-host-{worker}" for uuid in "12" for worker in "01"]
    assert names(open_run(f"{two_runs}/*-TracePlugin-*")) == of_workers
    with pytest.raises(SourceNotFoundError, match=r"pattern or run '.*\*none\*'"):
        open_run(f"{two_runs}/*none*")
    assert names(open_run(two_runs / "Tutorial")) == names_of("1")
    assert names(open_run(two_runs / "Oth")) == names_of("2")
    monkeypatch.chdir(two_runs)
    assert names(open_run("Tutorial")) == names(open_run("./Tut")) == names_of("1")


def test_an_exact_name_wins_over_longer_ones_and_a_prefix_of_several_chooses_none(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, "run", "1", 300.0)
    write_run(tmp_path, "run-2", "2", 200.0)
    assert names(open_run(tmp_path / "run")) == names_of("1")
    assert names(open_run(tmp_path / "run-")) == names_of("2")
    with pytest.raises(InvalidArgumentError, match="contains 2 runs: run, run-2"):
        open_run(tmp_path / "ru")


def test_a_directory_of_one_run(tmp_path: Path) -> None:
    files = write_run(tmp_path, "Tutorial", "1", 100.0)
    (tmp_path / "notes.txt").write_text("no trace")
    (tmp_path / "weather.msgpack").write_bytes(msgpack.packb({"rain": 1}))
    (tmp_path / "empty.msgpack").touch()
    (tmp_path / "directory.msgpack").mkdir()
    assert names(open_run(tmp_path)) == names_of("1")
    (run,) = find_runs(tmp_path)
    assert (run.name, run.created, run.files) == ("Tutorial", 100.0, sorted(files))


def test_the_newest_run_of_a_directory_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, uuid, created in (("a", "1", 100.0), ("b", "2", 300.0), ("c", "3", 200.0)):
        write_run(tmp_path, name, uuid, created)
    words = r"contains 2 other runs\. The newest, 'b', is opened\. To choose another.*info "
    with pytest.warns(UserWarning, match=words) as caught:
        assert names(open_run(tmp_path)) == names_of("2")
    assert caught[0].filename == __file__
    monkeypatch.chdir(tmp_path.parent)
    with pytest.warns(UserWarning) as caught:
        open_run(tmp_path.name)
    (example,) = [word for word in str(caught[0].message).split("'") if word.endswith("/c")]
    assert names(open_run(example)) == names_of("3")


def test_runs_of_which_none_is_known_to_be_the_newest_are_named_in_the_error(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, "Tutorial", "1", 100.0)
    write_run(tmp_path, "Other", "2", 100.0)
    with pytest.raises(InvalidArgumentError, match="contains 2 runs: Other, Tutorial") as raised:
        open_run(tmp_path)
    assert f"for example '{tmp_path}/Tutorial'" in str(raised.value)


def test_of_two_runs_of_one_name_the_newest_is_opened(tmp_path: Path) -> None:
    old = write_run(tmp_path, "Tutorial", "old", 100.0)
    new = write_run(tmp_path, "Tutorial", "new", 200.0)
    assert not {*old} & {*new}
    with pytest.warns(UserWarning, match="2 runs are named 'Tutorial'. The newest is") as caught:
        opened = open_run(tmp_path)
    assert names(opened) == names_of("new")
    assert caught[0].filename == __file__
    assert [(run.name, run.created, run.files) for run in find_runs(tmp_path)] == [
        ("Tutorial", 200.0, sorted(new)),
        ("Tutorial", 100.0, sorted(old)),
    ]
    assert names(open_run(f"{tmp_path}/*-0.msgpack")) == ["old TracePlugin-host-0"]


@pytest.mark.parametrize(
    "plugin",
    ["TracePlugin", "SchedulerPlugin", "ResourceMonitor", "StepRecorder", "GPUAnnotationPlugin"],
)
def test_a_file_of_any_plugin_that_lost_its_header(tmp_path: Path, plugin: str) -> None:
    write_run(tmp_path, "Tutorial", "1", 100.0)
    path = write(tmp_path / f"Tutorial-{plugin}-host-client.msgpack", "more")
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    (run,) = find_runs(tmp_path)
    assert path in run.files


def test_files_that_user_code_recorded_are_runs_by_their_names(tmp_path: Path) -> None:
    write(tmp_path / "mine.msgpack", "a")
    write(tmp_path / "yours.msgpack", "b")
    assert {run.name for run in find_runs(tmp_path)} == {"mine", "yours"}
    assert names(open_run(tmp_path / "mine")) == ["a"]


def test_nothing_there(two_runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match=r"runs found in .*: Other, Tutorial"):
        open_run(two_runs / "missing")
    with pytest.raises(SourceNotFoundError, match=r"runs found in .*: none"):
        open_run(tmp_path / "no" / "directory")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceNotFoundError, match=r"empty.* contains no trace file") as caught:
        open_run(tmp_path / "empty")
    assert isinstance(caught.value, FileNotFoundError)  # like in other libraries
    assert find_runs(tmp_path / "empty") == []
    assert os.listdir(tmp_path / "empty") == []
    (tmp_path / "t.msgpack").touch()
    with pytest.raises(NotATraceError, match=r"is empty.* or the disk was full"):
        open_run(tmp_path / "t.msgpack")


def test_names_with_characters_of_patterns(tmp_path: Path) -> None:
    directory = tmp_path / "of [today]"
    directory.mkdir()
    write_run(directory, "run*", "1", 100.0)
    assert names(open_run(directory)) == names_of("1")
    assert names(open_run(directory / "run*")) == names_of("1")


def test_many_databases_are_one(two_runs: Path) -> None:
    path = two_runs / "Other-TracePlugin-host-0.msgpack"
    both = MultiEventDatabase([path, str(path), EventProfiler(path), FileDatabase(path)])
    assert repr(both) == "MultiEventDatabase with 4 databases"
    assert names(both) == ["2 TracePlugin-host-0"] * 4
    assert [batch.name for _, batch in both.batches()] == ["2 TracePlugin-host-0"] * 4
    assert [*MultiEventDatabase([])] == []
    with pytest.raises(InvalidArgumentError, match="takes a list of databases"):
        MultiEventDatabase(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="got int: expected databases"):
        MultiEventDatabase([5])  # type: ignore[list-item]
    for missing in (two_runs / "missing.msgpack", two_runs):
        with pytest.raises(SourceNotFoundError, match="there is no trace file"):
            MultiEventDatabase([missing])


def test_a_file_that_cannot_be_read_is_left_out(two_runs: Path) -> None:
    """/proc/self/mem can be opened, but not read at its start."""
    (two_runs / "Other-TracePlugin-host-2.msgpack").symlink_to("/proc/self/mem")
    with pytest.warns(UserWarning, match=r"Other-TracePlugin-host-2\.msgpack is skipped"):
        assert names(open_run(two_runs / "Other")) == names_of("2")


def test_files_without_a_whole_block_are_an_error(two_runs: Path) -> None:
    paths = list(two_runs.glob("Other-*"))
    first = paths[0].read_bytes()
    for path in paths:
        path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(NotATraceError, match=r"Other cannot be read: none of its 3 files"):
        open_run(two_runs / "Other")
    # One readable file is enough.
    paths[0].write_bytes(first)
    assert len(names(open_run(two_runs / "Other"))) == 1


def test_a_directory_without_permission(two_runs: Path) -> None:
    """The process runs without root's capabilities, so that permissions apply."""
    two_runs.chmod(0)
    code = f"import dasfprof; dasfprof.open_run({str(two_runs)!r})"
    rights = "cap_dac_override,cap_dac_read_search"
    bounded = ["capsh", f"--drop={rights}", "--", "-c", f'{sys.executable} -c "{code}"']
    command = bounded if os.geteuid() == 0 else [sys.executable, "-c", code]
    if command is bounded and shutil.which("capsh") is None:
        pytest.skip("root may read everything")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    two_runs.chmod(0o700)
    assert f"{two_runs} cannot be read: permission denied." in done.stderr
