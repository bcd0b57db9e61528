"""Absurd times: all analyses and exports work, without warnings of NumPy."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from traces import Plugin, T, row
from traces.hung import ADDRESS

from dasfprof import EventProfiler, Trace, TraceAnalyser
from dasfprof.recording.probes.host import DISK_USAGE
from dasfprof.schema import tasks
from dasfprof.schema.resources import MANAGED_MEMORY, RESOURCE_USAGE

pytestmark = pytest.mark.filterwarnings("error")
#: Unix time of the year 1, and times that damage or a broken clock can cause.
ABSURD = (T, 1e300, -1e300, 1.7e308, -5.0, -62_135_596_800.0, 0.0)
ABSURD += (float("nan"), float("inf"), -float("inf"))


def rows_of(schema: Any) -> list[tuple[Any, ...]]:
    """Return rows with each absurd time in each field that is a time or a number."""
    columns = schema.fields + schema.args
    texts = {"worker": ADDRESS, "source": ADDRESS, "state": "memory", "key": "f-1"}
    rows = []
    for place in range(len(ABSURD)):
        given: dict[str, Any] = {name: texts[name] for name, _ in columns if name in texts}
        for at, (name, codec) in enumerate(columns):
            if codec in ("float", "float32", "time"):
                given[name] = ABSURD[(place + at * (place % 3)) % len(ABSURD)]
                if codec == "float32" and abs(given[name]) > 1e38:
                    given[name] = 1e38
        rows.append(row(schema, **given))
    return rows


@pytest.fixture(scope="module", params=["all", "mixed"])
def analyser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("absurd")
    sane = {"timestamp": T, "worker": ADDRESS, "state": "memory", "key": "f-1"}

    def write(plugin: str, *schemas: Any) -> None:
        facts = [(schema, rows_of(schema)) for schema in schemas]
        for schema in schemas if request.param == "mixed" else ():  # sane ones next to them
            names = dict(schema.fields + schema.args)
            values = {name: value for name, value in sane.items() if name in names}
            facts.append((schema, [row(schema, **values)]))
        Plugin(directory, plugin, address=ADDRESS).write(*facts)

    write("TracePlugin", tasks.COMPUTE, tasks.TRANSFER, tasks.CLOCK)
    write("ResourceMonitor", RESOURCE_USAGE, MANAGED_MEMORY, DISK_USAGE)
    workers = tasks.WORKER_ADDED, tasks.WORKER_REMOVED
    write("SchedulerPlugin", tasks.TASK_RUN, tasks.GRAPH, tasks.STEAL, tasks.UNSENT_TASKS, *workers)
    own = EventProfiler(directory / "own.msgpack")
    for time in ABSURD:
        own.record_instant_event("instant", time)
        own.record_duration_begin_event("span", time)
        own.record_duration_end_event("span", -time)
        if time >= 0:
            own.record_complete_event("complete", time, time)
    own.close()
    yield TraceAnalyser(Trace.from_database(str(directory / "*.msgpack")), progress=False)


QUESTIONS = sorted(
    name
    for name, method in inspect.getmembers(TraceAnalyser, inspect.isfunction)
    if not name.startswith("_")
    and all(
        parameter.default is not parameter.empty
        for parameter in [*inspect.signature(method).parameters.values()][1:]
    )
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question(analyser: TraceAnalyser, question: str) -> None:
    getattr(analyser, question)()


@pytest.mark.parametrize("by", ["cluster", "host", "worker", "function", "step"])
def test_an_account_of_time(analyser: TraceAnalyser, by: Any) -> None:
    analyser.time_accounting(by)


@pytest.mark.parametrize("to", ["perfetto", "csv", "parquet", "html"])
def test_an_export(analyser: TraceAnalyser, to: Any, tmp_path: Path) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")
    if to == "html":
        analyser.report(tmp_path / "page.html")
    else:
        analyser.export(tmp_path / to, to=to)
    assert "TraceAnalyser(" in repr(analyser)
