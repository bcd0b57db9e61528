"""All analyses of random traces with missing facts and impossible times."""

import inspect
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traces import Plugin, T, row

from dasfprof import Trace, TraceAnalyser
from dasfprof.analysis.diagnosis.ranking import FAILED
from dasfprof.recording.probes.host import DISK_USAGE
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE
from dasfprof.schema.tasks import (
    COMPUTE,
    GRAPH,
    TASK_RUN,
    TRANSFER,
    UNSENT_TASKS,
    WORKER_ADDED,
    WORKER_REMOVED,
)

A, B = "tcp://10.0.0.1:4000", "tcp://[::1"

_keys = st.sampled_from(["f-1", "f-2", ("g-" + "1a" * 16, 3), "\ud800", "", b"x", 7])
_times = st.one_of(
    st.integers(0, 80).map(lambda eighths: T + eighths / 8),
    st.none(),
    st.sampled_from([0.0, -1e300, 1e300, float("inf"), float("nan")]),
)
_numbers = st.one_of(st.integers(0, 10**9), st.none())
_seconds = st.one_of(
    st.integers(0, 40).map(lambda eighths: eighths / 8), st.just(float("nan")), st.just(-1.0)
)
_floats = st.one_of(st.integers(0, 40).map(lambda eighths: eighths / 8), st.none())
_exceptions = st.sampled_from([None, "", "ValueError('no 3')", "KilledWorker('f-1')", "\ud800<"])
_workers = st.sampled_from([A, B])

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "key": _keys,
    "keys": st.lists(_keys, max_size=3),
    "int": st.integers(0, 10**9),
    "float": _seconds,
    "float32": _floats,
    "time": _times,
    "text": st.sampled_from(["a", None, "\ud800", ""]),
    "value": st.just({}),
}
_NAMED: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.integers(0, 80).map(lambda eighths: T + eighths / 8),
    "state": st.sampled_from(["memory", "memory", "erred", "released", "success", "busy", None]),
    "exception": _exceptions,
    "worker": _workers,
    "source": _workers,
    "size": st.integers(0, 10**9),
    "run_id": st.integers(-1, 5),
    "thread": st.sampled_from([None, 140_000_000_000, 140_000_000_001]),
    "nthreads": st.integers(0, 4),
}


def rows_of(schema: Any, most: int = 8) -> st.SearchStrategy[list[Any]]:
    columns = {
        name: _NAMED.get(name, _VALUES[codec]) for name, codec in schema.fields + schema.args
    }
    one = st.fixed_dictionaries(columns).map(lambda values: row(schema, **values))
    return st.lists(one, max_size=most)


_traces = st.fixed_dictionaries(
    {
        schema: rows_of(schema)
        for schema in (COMPUTE, TRANSFER, RESOURCE_USAGE, DISK_USAGE, TASK_RUN, MANAGED_MEMORY)
    }
    | {schema: rows_of(schema, 2) for schema in (WORKER_ADDED, WORKER_REMOVED, GRAPH, UNSENT_TASKS)}
)

#: All analyses that return a table, except for the diagnosis, which has a separate test.
REPORTS = sorted(
    name
    for name, method in inspect.getmembers(TraceAnalyser, inspect.isfunction)
    if not name.startswith("_")
    and "DataFrame" in str(inspect.signature(method).return_annotation)
    and name not in ("diagnose", "memory_at", "why")
)

#: Export formats, except CSV, whose files are the tables.
EXPORTS = ("perfetto", "parquet") if find_spec("pyarrow") else ("perfetto",)

#: Tables and columns that show sampled values unchanged, and starts that may be before the trace.
AS_RECORDED = {"node_resource_usage", "node_disk_usage", "processes_resource_usage"}
AS_RECORDED |= {"Start (s)", "Arrival (s)", "Run ID"}
AS_RECORDED |= {"Mean GPU Memory Used (GB)", "Max GPU Memory Used (GB)"}
#: Columns that may be negative: a prediction may be longer, and a replay shorter, than the run.
SIGNED = {"Saved (s)", "Saved (%)", "Calibration Error (%)"}
#: In these tables, spilled bytes are subtracted from the process's memory.
SIGNED |= {"memory_peak", "memory_at"}


def written(directory: Path, facts: dict[Any, list[Any]]) -> Path:
    path = directory / "run"
    path.parent.mkdir(exist_ok=True)
    Plugin(path, address=A).write(*((schema, facts[schema]) for schema in (COMPUTE, TRANSFER)))
    Plugin(path, "ResourceMonitor", address=A).write(
        *((schema, facts[schema]) for schema in (RESOURCE_USAGE, DISK_USAGE, MANAGED_MEMORY))
    )
    Plugin(path, "SchedulerPlugin").write(
        *(
            (schema, facts[schema])
            for schema in (TASK_RUN, WORKER_ADDED, WORKER_REMOVED, GRAPH, UNSENT_TASKS)
        )
    )
    return path


# Shrinking such large examples would take minutes. The timeout detects analyses that hang.
@pytest.mark.timeout(300)
@examples(3)
@given(_traces)
def test_no_report_fails_or_is_negative(facts: dict[Any, list[Any]]) -> None:
    if not any(facts.values()):
        return
    with tempfile.TemporaryDirectory() as directory:
        analyser = TraceAnalyser(Trace.from_database(written(Path(directory), facts)))
        tables = {name: getattr(analyser, name)() for name in REPORTS}
        tables["by function"] = analyser.processed_tasks(by="function")
        for by in ("host", "worker", "function", "step"):
            tables[f"time by {by}"] = analyser.time_accounting(by)
        tables["path by step"] = analyser.critical_path_summary("step")
        if not np.isnan(analyser.trace.begin):
            tables["memory_at"] = analyser.memory_at(0.0)
        ran = analyser.run
        keys = ran.keys.texts(ran.task_runs["key_id"].to_numpy()[:1]).tolist()
        for key in keys:
            tables["why"] = analyser.why(str(key)).drop(columns="Start (s)")
        tables |= {f"cost by {by}": analyser.cost(by) for by in ("client", "line")}
        tables["graph"] = pd.DataFrame({"nodes": [len(analyser.create_annotated_task_graph())]})
        tables["moved"] = analyser.transfers("function")
        for to in EXPORTS:
            analyser.export(Path(directory) / to, to=to)
        analyser.report(Path(directory) / "page.html")

    for name, table in tables.items():
        for label, column in table.items():
            if not pd.api.types.is_numeric_dtype(column) or {name, label} & (AS_RECORDED | SIGNED):
                continue
            numbers = column.to_numpy(dtype=float, na_value=np.nan)
            assert not (numbers < 0).any(), (name, label, numbers)
    totals = tables["process_summary"]["Total"].sum()
    assert totals == tables["node_summary"]["Total"].sum()
    assert totals == len(tables["processed_tasks"]) == tables["by function"]["Total"].sum()
    assert totals >= len(facts[COMPUTE])


def sane(value: Any) -> Any:
    """Replace numbers that cannot be times with None, because time accounting needs valid times."""
    return None if isinstance(value, float) and not abs(value) < 1e12 else value


@pytest.mark.timeout(300)
@examples(3)
@given(_traces)
def test_the_diagnosis_holds(facts: dict[Any, list[Any]]) -> None:
    if not any(facts.values()):
        return
    likely = {
        schema: [(*row[:2], *map(sane, row[2:])) for row in rows] for schema, rows in facts.items()
    }
    with tempfile.TemporaryDirectory() as directory:
        TraceAnalyser(Trace.from_database(written(Path(directory) / "odd", facts))).diagnose()
        trace = Trace.from_database(written(Path(directory) / "likely", likely))
        findings = TraceAnalyser(trace).diagnose()

    assert FAILED not in set(findings["Rule"])
    assert not (findings["Seconds at stake (s)"].to_numpy() < 0).any()
