"""Traces are uploaded to object storage and read back completely and once, despite its errors."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import independent_record as record
import pandas as pd
import pytest
from click.testing import CliRunner
from clusters import new_client
from recorded_facts import assert_same_runs, assert_whole, computed
from s3_server import BUCKET, S3Server, server  # noqa: F401  (a fixture)

import dasfprof
from dasfprof.cli.main import cli
from dasfprof.database import FileDatabase, frames, open_run, runs
from dasfprof.database.storage import Storage, StoredRun, find_stored_runs
from dasfprof.errors import (
    InvalidArgumentError,
    MissingExtraError,
    RegistrationError,
    SourceNotFoundError,
    TraceError,
)
from dasfprof.recording.cluster.home import Home
from dasfprof.recording.settings import RunSettings, make_settings
from dasfprof.recording.shipping import sender as sending
from dasfprof.recording.shipping import targets
from dasfprof.recording.shipping.sender import Sender, files_to_upload
from dasfprof.recording.shipping.targets import StorageSender, upload_files
from dasfprof.schema.events import InstantEvent

whole_program = pytest.mark.whole_program
S3 = f"s3://{BUCKET}/traces"


@pytest.fixture
def s3(server: S3Server) -> Iterator[S3Server]:  # noqa: F811
    server.make_bucket()
    yield server
    server.takes.set()
    server.lies = 0


def info(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli, ["info", *arguments])
    return " ".join(outcome.output.split())


@pytest.mark.parametrize("kind", ["memory", pytest.param("s3", marks=whole_program)])
def test_a_run_goes_to_a_storage_and_comes_back(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        request.getfixturevalue("s3")
    url = S3 if kind == "s3" else f"memory://{tmp_path.name}/traces"
    with new_client(n_workers=2, processes=False) as client:
        record.install(client)
        with dasfprof.profile(client, "run", directory=url, flush_interval=60) as run:
            assert client.gather(client.map(abs, range(200))) == list(range(200))
            run.flush()
            assert_same_runs(run, record.outcomes(client, "memory"))
            assert client.gather(client.map(float, range(200))) == list(range(200))
            source = run.source
        assert source == f"{url}/{run.name}"
        assert not run.directory.exists()  # no file remains on this disk
        header = run.database().databases[0].trace_file().read_header()
        assert files_to_upload(header["run_uuid"]) == {}
        record.wait_until(lambda: not [t for t in threading.enumerate() if "uploader" in t.name])
        expected = record.outcomes(client, "memory")

    assert_whole(run)
    assert_same_runs(run, expected)
    by_url = dasfprof.TraceAnalyser(source, progress=False)
    # Each file consists of its pieces in order, also for other readers.
    files = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)[0]
    objects = files.find(url)
    joined: dict[str, bytes] = {}
    for name in sorted(objects):
        if name.endswith(".msgpack"):
            data = files.cat_file(name)
            assert frames.end_of_frames(data) == len(data)
            joined[Path(name).parent.name] = joined.get(Path(name).parent.name, b"") + data
    plain = tmp_path / "plain"
    plain.mkdir()
    for name, data in joined.items():
        (plain / f"{name}.msgpack").write_bytes(data)
    assert len(joined) == len(run.files()) == 6
    theirs = dasfprof.TraceAnalyser(plain, progress=False)
    for table in ("per_function_bottleneck", "per_worker_task_balance", "time_accounting"):
        pd.testing.assert_frame_equal(getattr(by_url, table)(), getattr(theirs, table)())
    assert sorted(map(Path.read_bytes, run.collect(tmp_path / "mine"))) == sorted(joined.values())

    told = info(url)
    assert "6 files" in told
    assert "lost nothing" in told
    assert told.count("closed cleanly") == 6
    directory = objects[0].partition("/traces/")[2].partition("/")[0]
    for one in (url, source, f"{url}/run", f"{url}/{directory}"):
        assert len(open_run(one).databases) == 6


def test_a_cluster_that_closes_has_put_everything(tmp_path: Path) -> None:
    """Its processes may end at any moment, so they wait for uploads in progress."""
    url = f"memory://{tmp_path.name}/closing"
    with new_client(n_workers=1, processes=False) as client:
        run = dasfprof.register_default_profiler(client, directory=url, flush_interval=60)
        assert client.gather(client.map(abs, range(20))) == list(range(20))
    run.stop()
    record.wait_until(lambda: not run.directory.exists())
    assert_whole(run)
    assert len(computed(run)) == 20
    assert len(run.files()) == 4


SCRIPT = """
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, dashboard_address=None) as cluster, Client(cluster) as client:
        print(sum(client.gather(client.map(abs, range(300)))))
"""


@whole_program
def test_a_script_whose_cluster_is_gone_before_it_ends(s3: S3Server, tmp_path: Path) -> None:
    """Its processes upload their last pieces while they exit."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "dasfprof", "run", "--directory", S3, str(script)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "44850\n")
    assert f"dasfprof recorded {S3}/script-" in outcome.stderr
    told = info(S3)
    assert "6 files" in told
    assert "lost nothing" in told
    assert len([event for event in open_run(S3) if event.name == "Compute"]) == 300


class Recorded:
    """File of a process that is recorded and uploaded."""

    def __init__(self, storage: str, name: str = "run", patience: float = 60) -> None:
        self.settings = make_settings(
            name=name, directory=storage, add_time_suffix=False, response_timeout=patience
        )
        self.database: FileDatabase = self.settings.open_database("TracePlugin", "worker", {})
        sender = upload_files(self.settings, "worker 1", [self.database])
        assert sender is not None
        self.sender: Sender = sender
        self.written = 0

    def record(self, count: int = 10, commit: bool = False) -> None:
        for _ in range(count):
            self.database.record(InstantEvent(f"event-{self.written}", float(self.written)))
            self.written += 1
        self.database.commit()
        if commit:
            self.sender.commit()

    def finish(self) -> None:
        self.database.close()
        self.sender.finish()

    def wait(self) -> None:
        """Wait until the storage has all events, once, in a closed file, and the disk has none."""
        record.wait_until(lambda: not files_to_upload(self.settings.uuid))
        (database,) = open_run(self.settings.source).databases
        assert isinstance(database, FileDatabase)
        file = database.trace_file()
        names = [event.name for batch in file.batches() for _, event in batch.events()]
        assert names == [f"event-{i}" for i in range(self.written)]
        assert file.end is not None
        assert not file.damage
        assert not Path(self.settings.directory).exists()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload pieces more often, so that tests need not wait for them."""
    monkeypatch.setattr(targets, "PIECE_SECONDS", 0.1)
    monkeypatch.setattr(StorageSender, "pause", 0.05)
    monkeypatch.setattr(sending, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(sending, "_LONGEST_PAUSE", 0.2)


@whole_program
@pytest.mark.usefixtures("quick")
def test_pieces_are_put_after_a_time_and_of_a_size(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorded(S3)
    run.record()
    record.wait_until(lambda: len(s3.puts) == 1)  # without a call of flush
    monkeypatch.setattr(targets, "PIECE_SECONDS", 3600.0)
    run.record()
    monkeypatch.setattr(targets, "PIECE_BYTES", 100)
    record.wait_until(lambda: len(s3.puts) == 2)
    assert [runs.position_of(Path(name).name) == 0 for name in s3.puts] == [True, False]
    run.record()
    run.finish()
    run.wait()


@pytest.mark.usefixtures("quick")
def test_a_storage_that_denies_for_a_while(s3: S3Server, caplog: pytest.LogCaptureFixture) -> None:
    run = Recorded(S3, patience=2)
    run.record(commit=True)
    s3.deny("s3:PutObject")
    for _ in range(3):
        run.record(commit=True)
    record.wait_until(lambda: "access is denied" in run.sender.trouble)
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 1  # once, however often it is retried
    assert f"worker 1 does not reach {S3} now: access is denied" in told[0]
    assert run.settings.directory in told[0]
    run.finish()
    told_of = {run.database.path.name: run.sender.trouble}
    record.wait_until(lambda: files_to_upload(run.settings.uuid) == told_of)
    assert run.database.path.exists()
    assert "still being written" in info(run.settings.source)
    s3.allow()
    run.wait()


@whole_program
@pytest.mark.usefixtures("quick")
def test_a_storage_that_is_gone_and_comes_back(s3: S3Server) -> None:
    run = Recorded(S3, patience=2)
    run.record(commit=True)
    s3.stop()
    run.record(commit=True)  # returns, because there is a time limit
    assert run.sender.unsent_files() == [run.database.path.name]
    run.record()
    s3.start()
    run.finish()
    run.wait()


@whole_program
@pytest.mark.usefixtures("quick")
def test_a_slow_storage_delays_nothing_but_itself(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Recorded(S3, patience=2)
    s3.takes.clear()
    run.record(5000, commit=True)
    run.record(5000)
    run.finish()
    assert list(files_to_upload(run.settings.uuid)) == [run.database.path.name]
    s3.takes.set()
    run.wait()
    # The upload is abandoned, and the log names the remaining files.
    s3.takes.clear()
    monkeypatch.setattr(StorageSender, "end_limit", 0.0)
    late = Recorded(S3, "late", patience=2)
    late.record()
    s3.deny("s3:PutObject")
    s3.takes.set()
    late.finish()
    record.wait_until(lambda: "stays in" in caplog.text)
    assert f"the trace of worker 1 is not completely in {S3}. All of it stays in" in caplog.text
    assert late.database.path.exists()
    late.database.path.unlink()
    Path(late.settings.directory).rmdir()


@whole_program
@pytest.mark.usefixtures("quick")
def test_a_piece_that_was_put_and_reported_as_failed_is_there_once(s3: S3Server) -> None:
    """The repeated upload has the same bytes, although more was written meanwhile."""
    run = Recorded(S3, patience=2)
    s3.lies = 2
    for commit in (True, True, False):
        run.record(commit=commit)
    run.finish()
    run.wait()
    sizes = [facts["size"] for facts in s3.files().find(S3, detail=True).values()]
    begins = sorted(runs.position_of(Path(name).name) for name in set(s3.puts))  # type: ignore[type-var]
    assert len(s3.puts) == len(begins) + 2
    assert sorted(begins) == [sum(sizes[:i]) for i in range(len(sizes))]


def test_restarted_workers_of_one_name_have_files_of_their_own() -> None:
    """A restarted pod has the same name and an empty disk."""
    settings = make_settings(name="pods", directory="memory://traces/pods", add_time_suffix=False)
    for life in range(2):
        database = settings.open_database("TracePlugin", "pod-0", {})
        sender = upload_files(settings, "pod-0", [database])
        assert sender is not None
        database.record(InstantEvent(f"life-{life}", 0.0))
        database.close()
        profile = database.path.with_suffix(".inc.pstats")
        profile.write_bytes(b"calls")
        sender.finish()
        assert not profile.exists()
    found = open_run("memory://traces/pods")
    assert sorted(event.name for event in found) == ["life-0", "life-1"]
    (path, _) = (item.path for item in found.databases if isinstance(item, FileDatabase))
    assert next(path.parent.glob("*.pstats")).read_bytes() == b"calls"


def stored(url: str, count: int = 6) -> tuple[RunSettings, list[str]]:
    """Upload a file in `count` pieces, and return their names."""
    run = Recorded(url)
    for _ in range(count - 1):
        run.record(commit=True)
    run.finish()
    files = fsspec.url_to_fs(url)[0]
    where = f"{url}/{run.settings.stored_directory}"
    return run.settings, sorted(files.unstrip_protocol(name) for name in files.find(where))


def test_a_piece_that_is_missing_costs_its_events_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/traces"
    settings, names = stored(url)
    assert len(names) == 6
    files = fsspec.url_to_fs(url)[0]
    size = files.size(names[2]) + files.size(names[3])
    for name in names[2:4]:
        files.rm(name)
    assert events(open_run(settings.source)) == [*range(20), *range(40, 50)]
    assert f"{size} corrupt bytes" in info(settings.source)
    files.rm(names[0])
    again = dict.fromkeys(events(fresh(settings)))
    assert list(again) == [*range(10, 20), *range(40, 50)]


def events(database: Any) -> list[int]:
    return [int(event.name.removeprefix("event-")) for event in database]


def fresh(settings: RunSettings) -> Any:
    """Open a run like another process, without local copies."""
    run = StoredRun(Storage(settings.storage), settings.stored_directory)
    return dasfprof.MultiEventDatabase(run.fetch())


def test_other_files_and_absurd_names_are_passed_over(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    settings, names = stored(url, 2)
    files = fsspec.url_to_fs(url)[0]
    place = names[0].rpartition("/")[0]
    for name in ("notes.txt", "-1.msgpack", "1e3.msgpack", "9" * 40 + ".msgpack"):
        files.pipe_file(f"{place}/{name}", b"rubbish")
    files.pipe_file(f"{url}/other/file.txt", b"rubbish")
    assert events(fresh(settings)) == [*range(10)]
    assert [run.name for run in find_stored_runs(url)] == ["run"]


def test_a_file_that_is_here_and_there_counts_once(tmp_path: Path) -> None:
    """The longer copy counts."""
    for there_is_longer in (True, False):
        run = Recorded(f"memory://{tmp_path.name}-{there_is_longer}")
        run.record(commit=True)
        early = run.database.path.read_bytes()
        run.record()
        late = run.database.path.read_bytes()
        if there_is_longer:
            run.sender.commit()
            run.database.path.write_bytes(early)
        (path,) = Home(run.settings).files()
        assert path.read_bytes() == late
        assert (path == run.database.path) != there_is_longer
        run.finish()


def test_only_the_run_that_is_asked_for_is_read(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    for name in ("first", "second"):
        run = Recorded(url, name)
        run.record()
        run.finish()
    (database,) = open_run(f"{url}/sec").databases
    assert database.path.name == run.database.path.name  # type: ignore[attr-defined]
    assert "2 runs in" in info(url)
    with pytest.raises(SourceNotFoundError, match=r"runs found in .*: first, second"):
        open_run(f"{url}/third")


def test_urls_that_cannot_be_used(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = {
        ("nosuch://x", None): (InvalidArgumentError, "not know the protocol 'nosuch'"),
        ("gs://x", None): (MissingExtraError, "gs://x requires another package: .*gcsfs"),
        (S3, "off"): (InvalidArgumentError, "contradicts"),
        ("traces", "storage"): (InvalidArgumentError, "needs the storage's URL"),
        (Path(S3), None): (InvalidArgumentError, "lost a slash"),
    }
    for (directory, ship), (kind, words) in choices.items():
        with pytest.raises(kind, match=words):
            make_settings(directory=directory, ship=ship)
    with pytest.raises(MissingExtraError, match="gcsfs"):
        open_run("gs://bucket/traces")
    with pytest.raises(SourceNotFoundError, match="no such bucket"):
        open_run("s3://other/traces")
    none = f"no trace file.*runs found in s3://{BUCKET}: none"
    with pytest.raises(SourceNotFoundError, match=none):
        open_run(S3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with pytest.raises(TraceError, match="this process has no credentials for it"):
        open_run(S3)
    settings = make_settings(name="run", directory="ftp://me:secret@host/traces")
    assert "secret" not in settings.source


@whole_program
def test_a_run_whose_storage_cannot_be_written_is_not_registered(s3: S3Server) -> None:
    with new_client(n_workers=1, processes=False) as client:
        with pytest.raises(RegistrationError, match=r"s3://other/traces: there is no such bucket"):
            dasfprof.register_default_profiler(client, directory="s3://other/traces")
        s3.deny("s3:PutObject")
        with pytest.raises(RegistrationError, match="access is denied"):
            dasfprof.register_default_profiler(client, directory=S3)
        s3.allow()
        # The storage fails later: stopping the run reports it, and its events stay on this disk.
        run = dasfprof.register_default_profiler(client, directory=S3, response_timeout=2)
        s3.deny("s3:PutObject")
        assert client.submit(abs, -1).result() == 1
        run.stop()
        assert [path for path in run.files() if "TracePlugin" in path.name]
        s3.allow()
        record.wait_until(lambda: not run.directory.exists())
        assert_whole(run)
