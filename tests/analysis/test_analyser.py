"""`TraceAnalyser`: accepted sources, representations, and errors."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from traces import compute, managed, record, write_as_dasf

from dasfprof import Trace, TraceAnalyser
from dasfprof.database import EventDatabase, EventProfiler, FileDatabase, MultiEventDatabase
from dasfprof.errors import InvalidArgumentError, NotATraceError, SourceNotFoundError
from dasfprof.schema.events import Event

EVENTS: list[Event] = [
    compute("load-1", 0.0, 1.0, "w", size=8_000_000),
    compute("sum-1", 1.0, 2.0, "w", size=24, dependencies=["load-1", "elsewhere"]),
    managed(1.0, "w", 1),
]


class InMemory(EventDatabase):
    def get_traces(self) -> Iterator[Event]:
        return iter(EVENTS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return record(tmp_path / "traces", EVENTS)


def test_every_kind_of_source(run: Path) -> None:
    (path,) = run.iterdir()
    profiler, database = EventProfiler(str(path)), FileDatabase(path)
    sources: list[Any] = [run, str(run), str(path), str(run / "ru"), str(run / "*.msgpack")]
    sources += [[path], [str(path)], database, profiler, [profiler], (database,)]
    sources += [MultiEventDatabase([path]), InMemory(), MultiEventDatabase([InMemory()])]
    for source in [*sources, Trace.from_database(path)]:
        analyser = TraceAnalyser(source)
        assert analyser.per_task_bottleneck()["Task Key"].tolist() == ["sum-1", "load-1"], source


def test_a_database_that_is_being_recorded_into(tmp_path: Path) -> None:
    with FileDatabase(tmp_path / "new.msgpack") as database:
        for event in EVENTS:
            database.record(event)
        assert len(TraceAnalyser(database).per_task_bottleneck()) == 2


def test_sources_that_are_no_traces(tmp_path: Path) -> None:
    for source in (None, 3, {"a": 1}, [3], object()):
        with pytest.raises(InvalidArgumentError, match=r"cannot analyse .*MultiEventDatabase"):
            TraceAnalyser(source)  # type: ignore[arg-type]
    with pytest.raises(SourceNotFoundError):
        TraceAnalyser(tmp_path / "nothing")
    (tmp_path / "text.msgpack").write_text("no trace")
    with pytest.raises(NotATraceError):
        TraceAnalyser(tmp_path / "text.msgpack")
    with pytest.raises(InvalidArgumentError, match="progress='yes'"):
        TraceAnalyser([], progress="yes")  # type: ignore[arg-type]


def test_an_empty_list_is_an_empty_run() -> None:
    analyser = TraceAnalyser([])
    assert len(analyser.per_function_bottleneck()) == 0
    assert analyser.create_annotated_task_graph().number_of_nodes() == 0
    assert "0 task runs" in repr(analyser)


@pytest.mark.parametrize("write", [record, write_as_dasf])
def test_annotated_task_graph(tmp_path: Path, write: Any) -> None:
    graph = TraceAnalyser(write(tmp_path / "run", EVENTS[:2])).create_annotated_task_graph()
    assert set(graph.edges) == {("load-1", "sum-1"), ("elsewhere", "sum-1")}
    assert graph.nodes["load-1"] == {
        "name": "load",
        "size": 8_000_000,
        "shape": (1, 2),
        "type": "<class 'numpy.ndarray'>",
        "duration": 1.0,
        "input_data_size": 0,
        "throughput": 0.0,
    }
    assert graph.nodes["elsewhere"] == {}
    # The size of the other input is unknown.
    assert math.isnan(graph.nodes["sum-1"]["input_data_size"])
    assert math.isnan(graph.nodes["sum-1"]["throughput"])


def test_progress(run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(progress: bool | None) -> str:
        analyser = TraceAnalyser(run, progress=progress)
        analyser.per_function_bottleneck()
        analyser.per_task_bottleneck()
        analyser.per_worker_task_balance()
        analyser.create_annotated_task_graph()
        out, err = capsys.readouterr()
        assert out == ""
        return err

    # A delay that not even a slow machine reaches, then no delay.
    monkeypatch.setattr("dasfprof.analysis.trace.progress._DELAY", 1e6)
    assert shown(True) == "", "there is nothing to wait for"
    monkeypatch.setattr("dasfprof.analysis.trace.progress._DELAY", 0.0)
    assert "Reading traces:" in shown(True)
    assert "Creating annotated task graph" in shown(True)
    assert shown(False) == ""
    # Tests of notebooks leave it imported.
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert shown(None) == ""  # not a terminal
    with dask.config.set({"dasfprof.progress": True}):
        assert "Reading traces" in shown(None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "Reading traces" in shown(None)
    with dask.config.set({"dasfprof.progress": False}):
        assert shown(None) == ""
