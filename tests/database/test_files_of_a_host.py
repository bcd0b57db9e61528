"""The names of files that DASF's tutorial opens: one for a plugin on a host, of all its workers."""

from pathlib import Path

import pytest
from traces import row

from dasfprof import EventProfiler, FileDatabase, MultiEventDatabase, TraceAnalyser
from dasfprof.database.writer import Source
from dasfprof.errors import ReadOnlyError
from dasfprof.schema.events import InstantEvent, Schema
from dasfprof.schema.resources import RESOURCE_USAGE
from dasfprof.schema.tasks import COMPUTE

RUN = "Tutorial_5_Profile"


def write(directory: Path, plugin: str, host: str, worker: int, rows: int) -> None:
    """Write a worker's file with so many events."""
    kind: Schema = COMPUTE if plugin == "TracePlugin" else RESOURCE_USAGE
    facts = {"id": f"{host}-{worker}", "name": worker, "label": f"worker-{host}-{worker}"}
    header = {"run": "r", "plugin": plugin, "host": host, "boot_id": host, "worker": facts}
    path = directory / f"{RUN}-{plugin}-{host.replace('-', '_')}-{worker}.msgpack"
    with FileDatabase(path, header=header) as database:
        source = Source.from_schema(kind, {"process_id": host, "thread_id": facts["label"]})
        database.writer.add_source(source)
        for number in range(rows):
            key = {"key": f"f-{worker}-{number}", "run_id": number, "name": "f"}
            more = {**key, "duration": 0.5, "state": "memory"} if kind is COMPUTE else {}
            source.rows.append(row(kind, timestamp=100.0 + worker + number, **more))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for plugin in ("TracePlugin", "ResourceMonitor"):
        for host, worker, rows in (("c096", 0, 3), ("c096", 1, 2), ("c096-b", 2, 1)):
            write(tmp_path, plugin, host, worker, rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("directory")
def test_they_open_as_the_tutorial_opens_them() -> None:
    """Not those of another host whose name begins alike."""
    db1 = EventProfiler(f"{RUN}-ResourceMonitor-c096.msgpack")
    db2 = EventProfiler(f"{RUN}-TracePlugin-c096.msgpack")
    assert repr(db2) == (
        f"EventProfiler(database=HostDatabase at {RUN}-TracePlugin-c096.msgpack (2 files))"
    )
    assert [len(list(one.get_traces())) for one in (db1, db2)] == [5, 5]
    assert {event.process_id for event in db2.get_traces()} == {"c096"}
    database = MultiEventDatabase([db1, db2])
    assert repr(database) == "MultiEventDatabase with 4 databases"
    assert sum(1 for _ in database) == 10
    table = TraceAnalyser(database, progress=False).per_function_bottleneck()
    assert table["Num Tasks (chunks)"].sum() == 5
    other = EventProfiler(f"{RUN}-TracePlugin-c096-b.msgpack")
    assert [event.args["key"] for event in other.get_traces()] == ["f-2-0"]
    with pytest.raises(ReadOnlyError):
        db2.database.record(InstantEvent("mine", 1.0))


def test_other_new_names_are_new_files(directory: Path) -> None:
    """Files whose names begin in the same way change nothing, such as those of a run."""
    (directory / "mine-1.msgpack").write_bytes(
        (directory / f"{RUN}-TracePlugin-c096-0.msgpack").read_bytes()
    )
    with EventProfiler("mine.msgpack").database as database:
        database.record(InstantEvent("mine", 1.0))
    assert [event.name for event in EventProfiler("mine.msgpack").get_traces()] == ["mine"]
