"""A run as CSV and Parquet: complete and typed tables, as other tools read them."""

import csv
import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exported_traces import MORE_EVENTS, analyser_of
from opened_pages import BEGIN, LOAD, SUM, compute

from dasfprof import CompleteEvent, InstantEvent, TraceAnalyser, export
from dasfprof.analysis import Trace
from dasfprof.errors import InvalidArgumentError
from dasfprof.report.formats.parquet_schemas import SCHEMAS
from dasfprof.schema import KINDS, profiles, resources, steps, tasks, under_way
from dasfprof.schema.events import Event, EventPhases, Schema

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'dasfprof[parquet]'")

GUIDE_NAMES = {
    *("processed_tasks", "process_summary", "node_summary", "node_resource_usage"),
    *("node_disk_usage", "processes_resource_usage"),
}


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    return analyser_of(tmp_path_factory.mktemp("trace") / "run", MORE_EVENTS)


@pytest.fixture(scope="module")
def tables(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(analyser, tmp_path_factory.mktemp("csv") / "new" / "tables", to="csv")


@pytest.fixture(scope="module")
def parquet(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("parquet") / "new" / "tables"
    return export(analyser, directory, to="parquet", title="my run")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_question_has_a_file(tables: Path) -> None:
    names = {path.stem for path in tables.iterdir()}
    assert names >= GUIDE_NAMES
    assert names >= {"function_bottleneck", "task_bottleneck", "task_balance", "findings"}
    assert names >= {"time_accounting", "time_accounting_by_worker", "transfers_by_function"}
    assert "time_accounting_by_cluster" not in names, "it is what is given by default"
    answers = [
        method
        for method, function in inspect.getmembers(TraceAnalyser, inspect.isfunction)
        if not method.startswith("_") and "DataFrame" in str(function.__annotations__.get("return"))
    ]
    answers = [
        name for name in answers if name not in ("memory_at", "why")
    ]  # these need a time or a task
    renamed = {"per_worker_task_balance": "task_balance", "diagnose": "findings"}
    assert {renamed.get(name, name.removeprefix("per_")) for name in answers} <= names


def test_a_table_is_as_the_analyser_gives_it(tables: Path) -> None:
    rows = read_csv(tables / "processed_tasks.csv")
    assert len(rows) == len([event for event in MORE_EVENTS if event.name == "Compute"])
    (failed,) = (row for row in rows if row["Task"] == "fails-1")
    assert failed["Status"] == "erred"
    assert failed["Error Message"] == "ValueError: <b>no</b>"
    assert float(failed["Run Method Seconds"]) == pytest.approx(0.5)
    again = [row["Attempt"] for row in rows if row["Task"] == "again-1"]
    assert again == ["1", "2"]


def test_formulas_in_any_table_are_defused(tmp_path: Path) -> None:
    key = '=HYPERLINK("http://x";"y")-1'
    run = analyser_of(tmp_path / "run", [compute(key, 1.0, 1.0, 0, exception=key, state="erred")])
    for path in export(run, tmp_path / "tables", to="csv").iterdir():
        for row in read_csv(path):
            assert not any(str(cell).startswith(("=", "@", "+")) for cell in row.values()), path


def test_each_field_tells_its_meaning(parquet: Path) -> None:
    assert {path.stem for path in parquet.iterdir()} == {schema.name for schema in SCHEMAS}
    for table in SCHEMAS:
        schema = pq.read_schema(parquet / f"{table.name}.parquet")
        assert schema.metadata[b"description"] == table.about.encode()
        assert schema.metadata[b"run"] == b"my run"
        for column in table.columns:
            about = schema.field(column.name).metadata
            assert about[b"description"] == column.about.encode()
    fields = pq.read_schema(parquet / "tasks.parquet")
    assert str(fields.field("start").type) == "timestamp[us, tz=UTC]"
    assert str(fields.field("size").type) == "int64"
    assert fields.field("size").metadata[b"unit"] == b"B"


#: Tables with one row per event of a kind.
TABLES_OF_EVENTS = {
    **{"actor_calls": tasks.ACTOR_CALL, "arguments": tasks.TASK_ARGUMENTS, "clocks": tasks.CLOCK},
    **{"call_profiles": profiles.CALL_PROFILE, "client_calls": steps.CLIENT_CALLS},
    **{"client_samples": profiles.CLIENT_SAMPLE, "clients_under_way": under_way.CLIENT_UNDER_WAY},
    **{"cluster_changes": tasks.CLUSTER_CHANGE, "copies_dropped": tasks.COPY_DROPPED},
    **{"device_memory": resources.DEVICE_MEMORY, "disk_usage": resources.DISK_USAGE},
    **{"function_code": tasks.FUNCTION_CODE, "functions_sent": steps.FUNCTION_SENT},
    **{"gpu_devices": resources.GPU_DEVICES, "gpu_usage": resources.GPU_USAGE},
    **{"graphs": tasks.GRAPH, "graphs_sent": steps.GRAPH_SENT, "logs": tasks.LOG_RECORD},
    **{"host_processes": resources.HOST_PROCESS, "locks_held": under_way.LOCK_HELD},
    **{"loop_samples": profiles.LOOP_SAMPLE},
    **{"managed_memory": resources.MANAGED_MEMORY, "releases": tasks.RESULT_RELEASED},
    **{"samples": resources.RESOURCE_USAGE, "scheduler_states": under_way.SCHEDULER_STATE},
    **{"sent_values": steps.SENT_VALUE, "serialised": tasks.RESULT_SERIALISED},
    **{"shuffle_messages": tasks.SHUFFLE_MESSAGE, "steals": tasks.STEAL, "storage": tasks.STORAGE},
    **{"task_samples": profiles.TASK_SAMPLE, "tasks": tasks.COMPUTE},
    **{"tracebacks": tasks.TRACEBACK, "transfers": tasks.TRANSFER},
    **{"under_way": under_way.TASK_UNDER_WAY, "under_way_history": under_way.TASK_UNDER_WAY},
    "unsent": tasks.UNSENT_TASKS,
}
#: Facts with another form in the tables: keys, workers and times by row numbers.
TOLD_OTHERWISE = {"key", "run_id", "worker", "time", "stack", "dependencies", "keys", "waits_keys"}


@pytest.mark.parametrize("name", TABLES_OF_EVENTS)
def test_the_page_has_each_recorded_column(name: str) -> None:
    (table,) = (table for table in SCHEMAS if table.name == name)
    page = {(column.name, column.kind, column.about) for column in table.columns}
    recorded = {
        (column.name, {"object": "text"}.get(column.kind, column.kind), column.about)
        for column in TABLES_OF_EVENTS[name].columns
        if column.in_tables and column.name not in TOLD_OTHERWISE
    }
    assert recorded - page == (
        {("file", "text", "name of the file, or None if there is none")} & recorded
    )


def check_tasks(rows: list[dict[str, Any]], keys: list[str]) -> None:
    runs = {(row["key"], row["run_id"]): row for row in rows}
    recorded = {
        (str(event.args["key"]), event.args["run_id"]): event
        for event in MORE_EVENTS
        if event.name == "Compute"
    }
    assert runs.keys() == recorded.keys()
    for identity, event in recorded.items():
        row = runs[identity]
        assert row["duration"] == pytest.approx(event.duration)  # type: ignore[union-attr]
        assert row["start"].timestamp() == pytest.approx(event.timestamp, abs=1e-6)
        assert (row["size"], row["state"]) == (event.args["size"], event.args["state"])
        needs = [keys[number] for number in row["dependencies"]]
        assert needs == [str(key) for key in event.args["dependencies"]]
    assert runs[str((SUM, 0)), 0]["shape"] == "(500, 500)"
    assert runs["fails-1", 0]["exception"] == "ValueError: <b>no</b>"
    assert runs["co-1", 0]["thread"] is None
    assert runs["co-1", 0]["exception"] is None


def test_arrow_and_pandas_read_it(parquet: Path, analyser: TraceAnalyser) -> None:
    keys = pq.read_table(parquet / "keys.parquet")["key"].to_pylist()
    check_tasks(pq.read_table(parquet / "tasks.parquet").to_pylist(), keys)
    transfers = pq.read_table(parquet / "transfers.parquet").to_pylist()
    moved = [[keys[number] for number in row["keys"]] for row in transfers]
    assert moved == [[str((LOAD, 1))], [str((LOAD, 1)), "('nobody', 1)"]]
    assert [row["host"] for row in transfers] == ["node", "node"]
    graph = pq.read_table(parquet / "graphs.parquet").to_pylist()[0]
    assert (graph["tasks"], graph["wanted"], graph["stimulus"]) == (6, 2, "update-graph-1")

    # With pandas' types.
    frame = pd.read_parquet(parquet / "tasks.parquet")
    assert str(frame["start"].dtype) == "datetime64[us, UTC]"
    assert frame["duration"].sum() == pytest.approx(analyser.trace.tasks["duration"].sum())
    samples = pd.read_parquet(parquet / "samples.parquet")
    assert samples["cpu"].tolist() == [50.0, 100.0]
    assert samples["memory"].tolist() == [10_000_000] * 2


def test_polars_reads_it(parquet: Path) -> None:
    polars = pytest.importorskip("polars", reason="needs polars: pip install 'dasfprof[test]'")
    keys = polars.read_parquet(parquet / "keys.parquet")["key"].to_list()
    frame = polars.read_parquet(parquet / "tasks.parquet")
    assert frame.schema["start"] == polars.Datetime("us", "UTC")
    check_tasks(frame.to_dicts(), keys)


def test_duckdb_reads_it(parquet: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'dasfprof[test]'")
    query = """
        select k.key, count(*) from (select unnest(dependencies) as id from '{0}/tasks.parquet')
        join '{0}/keys.parquet' k on k.key_id = id group by k.key order by 2 desc, 1
    """
    taken = duckdb.sql(query.format(parquet)).fetchall()
    loads = [str((LOAD, number)) for number in range(3)]
    assert taken == [(loads[1], 2), ("again-1", 2), (loads[0], 1), (loads[2], 1)]
    first = duckdb.sql(f"select epoch(min(start)) from '{parquet}/tasks.parquet'").fetchall()
    assert first == [(BEGIN + 1.0,)]


def test_many_rows_come_in_groups(tmp_path: Path) -> None:
    analyser = analyser_of(tmp_path / "run")
    rows = [number % len(analyser.trace.tasks) for number in range((1 << 16) + 5)]
    many = TraceAnalyser(repeated(analyser.trace, rows))
    export(many, tmp_path / "out", to="parquet")
    file = pq.ParquetFile(tmp_path / "out" / "tasks.parquet")
    assert [file.metadata.row_group(at).num_rows for at in range(2)] == [1 << 16, 5]
    keys = pq.read_table(tmp_path / "out" / "keys.parquet")["key"].to_pylist()
    needed = file.read(["key", "dependencies"]).to_pylist()
    last = [str((LOAD, 0)), str((LOAD, 1))]
    for row in (needed[0], *needed[-24:]):
        if row["key"] == str((SUM, 0)):
            assert [keys[number] for number in row["dependencies"]] == last


def repeated(trace: Any, rows: list[int]) -> Any:
    """Return a trace with repeated rows of its tasks."""
    lengths, ids = trace.task_dependencies
    ends = np.cumsum(np.maximum(lengths, 0))
    lists = [ids[end - max(length, 0) : end] for end, length in zip(ends, lengths, strict=True)]
    return dataclasses.replace(
        trace,
        tasks=trace.tasks.iloc[rows].reset_index(drop=True),
        task_dependencies=(lengths[rows], np.concatenate([lists[row] for row in rows])),
    )


HOSTILE = ("half \udcff-1", "\x00\x1b]0;x\x07-2", "k" * 1_000_000, "\U0001f600-3")


def test_hostile_text_is_text(tmp_path: Path) -> None:
    events = [
        compute(key, float(at), 0.5, 0, state="erred", exception=key)
        for at, key in enumerate(HOSTILE)
    ]
    directory = export(analyser_of(tmp_path / "run", events), tmp_path / "out", to="parquet")
    rows = pq.read_table(directory / "tasks.parquet").to_pylist()
    shown = ["half \\udcff-1", *HOSTILE[1:]]
    assert [row["key"] for row in rows] == shown
    assert [row["exception"] for row in rows] == shown


def event_of(schema: Schema) -> Event:
    """Return an event of a schema with a value for each arg."""
    values: dict[str, Any] = {"key": "f-1", "keys": ["f-1"], "text": "a", "value": {}}
    args = {name: values.get(codec, 1) for name, codec in schema.args}
    args |= {"worker": "tcp://node:9"} if "worker" in args else {}
    who = {"process_id": "node", "thread_id": "worker-node-0", "args": args}
    if schema.phase == EventPhases.COMPLETE:
        return CompleteEvent(schema.name, BEGIN, 1.0, **who)
    return InstantEvent(schema.name, BEGIN, **who)


def test_all_that_is_recorded_is_described(tmp_path: Path) -> None:
    analyser = analyser_of(tmp_path / "run", [event_of(kind) for kind in KINDS.values()])
    tables = {
        field.name
        for field in dataclasses.fields(Trace)
        if isinstance(getattr(analyser.trace, field.name), pd.DataFrame)
    }
    directory = export(analyser, tmp_path / "out", to="parquet")

    assert {*tables, "keys"} == {schema.name for schema in SCHEMAS}
    for path in directory.iterdir():
        described = {field.metadata[b"description"] for field in pq.read_schema(path)}
        assert b"as it was recorded" not in described, path.stem
    (unsent,) = pq.read_table(directory / "unsent.parquet").to_pylist()
    assert (unsent["name"], unsent["key"], unsent["restrictions"]) == ("a", "f-1", "{}")


def test_an_empty_run_has_all_columns(tmp_path: Path) -> None:
    empty = analyser_of(tmp_path / "run", [])
    head = (export(empty, tmp_path / "csv", to="csv") / "function_bottleneck.csv").read_text()
    assert head.startswith("Host,GPU,Function,Duration (s),")
    directory = export(empty, tmp_path / "out", to="parquet")
    for table in SCHEMAS:
        found = pq.read_table(directory / f"{table.name}.parquet")
        assert set(found.column_names) >= {column.name for column in table.columns}
        assert found.num_rows == 0


def test_the_analyser_s_method_does_the_same(analyser: TraceAnalyser, tmp_path: Path) -> None:
    path = analyser.export(tmp_path / "mine.json", to="perfetto", title="my run")
    export(analyser, tmp_path / "other.json", to="perfetto", title="my run")
    assert path.read_bytes() == (tmp_path / "other.json").read_bytes()


def test_another_format_is_refused(analyser: TraceAnalyser, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"to='excel'.*perfetto, csv, parquet"):
        export(analyser, tmp_path / "x", to="excel")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
