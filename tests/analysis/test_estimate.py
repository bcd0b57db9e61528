"""Estimates equal the tasks, bytes, peak memory and seconds of runs, and warn of explosions."""

import inspect
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import client_of
from dask.utils import key_split
from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin
from estimated_programs import PLANTED, SANE, Stored, labelled, table
from jsonschema import Draft202012Validator
from lined_runs import FILE, FIRST, write_lines, write_run

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.errors import DoesNotFit, InvalidArgumentError, SourceNotFoundError
from dasfprof.handles.estimation import assumed_cluster as assumed
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks
from dasfprof.report.documents import read_schema

client = client_of(2, 2, processes=False, memory_limit=0)


class Oracle(SchedulerPlugin):
    """Plugin that records the bytes of each result, and the peak of results on a worker."""

    name = "oracle"

    def __init__(self) -> None:
        self.sizes: dict[Any, int] = {}
        self.peak = 0

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *_: Any, **about: Any) -> None:
        if (start, finish) == ("processing", "memory"):
            self.sizes[key] = about["nbytes"]
        self.peak = max(self.peak, *(each.nbytes for each in self.scheduler.workers.values()))


def run(client: Client, collection: Any) -> Oracle:
    oracle = Oracle()
    oracle.scheduler = client.cluster.scheduler
    client.sync(call, oracle.scheduler.add_plugin, oracle)
    collection.compute()
    client.sync(call, oracle.scheduler.remove_plugin, "oracle")
    return oracle


async def call(function: Any, *arguments: Any) -> None:
    function(*arguments)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("name", [*SANE, "labelled"])
def test_a_run_takes_what_was_estimated(name: str, client: Client, place: Path) -> None:
    """The scheduler is the oracle: its tasks, their bytes, and its sums per worker."""
    if name == "labelled":
        pytest.importorskip("xarray")
    collection = (labelled if name == "labelled" else SANE[name])(place)
    estimate = dasfprof.estimate(collection)
    assert estimate.warnings.empty, estimate.warnings.to_string()
    assert estimate.threads == [2, 2]
    ran = run(client, collection)
    assert estimate.tasks == len(ran.sizes) == estimate.layers["Tasks"].sum()
    measured: Counter[Any] = Counter()
    for key, size in ran.sizes.items():
        measured[key[0] if isinstance(key, tuple) else None] += size
    known = estimate.layers.dropna(subset=["Layer", "Bytes"])
    for layer, size in zip(known["Layer"], known["Bytes"], strict=True):
        # Results have up to 100 bytes besides their values, so small results are not compared.
        if measured[layer] > 20_000:
            assert size == pytest.approx(measured[layer], rel=0.1), layer
    if estimate.peak_bytes is not None:  # on a busy machine, tasks may run in another order
        assert estimate.peak_bytes[0] / 2 <= ran.peak <= estimate.peak_bytes[1] * 2
    else:
        assert "the size of the results of" in estimate.peak_unknown


@pytest.mark.parametrize("name", PLANTED)
def test_planted_explosions_are_named_with_their_lines(name: str, place: Path) -> None:
    program, finding = PLANTED[name]
    lines, first = inspect.getsourcelines(program)
    number = first + next(at for at, line in enumerate(lines) if "# planted" in line)
    limit = None
    if name == "large_chunk":  # the limit is that of a worker: 3.2 GB do not fit
        with pytest.raises(DoesNotFit, match=r"a chunk of 'add' has 3\.2 GB") as error:
            dasfprof.estimate(lambda: program(place), workers=[4], memory_limit="3 GB")
        assert error.value.line == f"estimated_programs.py:{number}"
        limit = "4 GB"
    found = dasfprof.estimate(lambda: program(place), workers=[4], memory_limit=limit)
    rows = found.warnings[found.warnings["Finding"].str.contains(finding, regex=False)]
    assert rows["Line"].tolist() == [f"estimated_programs.py:{number}"], found.warnings.to_string()


def test_filters_in_the_text_of_a_query(place: Path) -> None:
    def suggestions(text: str) -> list[str]:
        estimate = dasfprof.estimate(lambda: table(place).query(text), workers=[1])
        return list(estimate.warnings["Suggestion"])

    (suggestion,) = suggestions("k < 40 and (w > 180_000) & (v <= 2.0)")
    assert "filters=[('k', '<', 40), ('w', '>', 180000), ('v', '<=', 2.0)]" in suggestion
    for text in ("w > 180_000 or k < 40", "w > v", "-w < -180_000", "w > 0"):
        assert not suggestions(text), text


def test_bytes_by_hand() -> None:
    """There are 16 chunks of 25 x 25 numbers of 8 bytes, and sums over rows of four chunks."""

    def build() -> Any:
        return (da.random.random((100, 100), chunks=25) + 1).T.rechunk((100, 20)) * 2

    found = dasfprof.estimate(build, workers=[1])
    layers = found.layers.set_index("Function")
    columns = ["Tasks", "Largest Chunk", "Bytes"]
    assert layers.loc["transpose", columns].tolist() == [16, 5000, 80_000]
    (split,) = layers.index[layers.index.str.startswith("rechunk-split")]
    # Columns 0-25-50-75-100 become 0-20-40-60-80-100: eight pieces in each of four rows.
    assert layers.loc[split, ["Tasks", "Bytes"]].tolist() == [32, 80_000]
    line = inspect.getsourcelines(build)[1] + 1
    assert set(found.layers["Line"].dropna()) <= {f"test_estimate.py:{line}"}
    assert found.layers["Growth"].dropna().tolist() == [1.0] * (len(layers) - 1)


def test_the_peak_by_hand() -> None:
    """One thread computes ten results of 8 kB, which are inputs of the last task."""
    parts = [dask.delayed(np.zeros)(1000) for _ in range(10)]
    x = da.concatenate([da.from_delayed(part, (1000,), "f8") for part in parts])
    found = dasfprof.estimate(x.rechunk(10_000), workers=[1])
    assert found.peak_bytes is not None
    assert found.peak_bytes[1] >= 80_000


def test_a_guard_knows_chunks_inside_fused_tasks() -> None:
    """Each task allocates 800 MB and returns one number."""
    x = (da.random.random((20_000, 20_000), chunks=10_000) + 1).sum()
    with pytest.raises(DoesNotFit, match="800 MB"):
        dasfprof.estimate(x, memory_limit="500 MB")
    assert dasfprof.estimate(x, memory_limit="900 MB").tasks
    # Only slices of a stored array are read, and a broadcast repeats values without copies.
    stored = da.from_array(Stored(), chunks=(1000, 1000))[:10]
    assert dasfprof.estimate(stored.sum(), memory_limit="1 MB").tasks
    repeated = da.broadcast_to(da.ones(1000, chunks=1000), (100_000, 1000), chunks=(100_000, 1000))
    assert dasfprof.estimate(repeated[:5].sum(), memory_limit="100 MB").tasks


def test_a_guard_knows_results_that_stay() -> None:
    """The client wants all 100 chunks of 8 MB, so they stay on two workers."""
    x = da.random.random((10_000, 10_000), chunks=1000)
    with pytest.raises(DoesNotFit) as error:
        dasfprof.estimate(lambda: x + 1, workers=[1, 1], memory_limit="100 MB")
    assert isinstance(error.value, MemoryError)
    assert error.value.layer
    assert dasfprof.estimate(x + 1, workers=[1, 1], memory_limit="4 GB").peak_bytes


def test_what_is_spilled(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker holds 0.8 GB, or 1.6 GB with the final copy, and spills beyond 60 % of 1.5 GB."""
    x = da.random.random((10_000, 10_000), chunks=1000)
    there = dasfprof.estimate(x + 1, workers=[1], memory_limit="1.5 GB")
    assert there.spilled_bytes is not None
    assert there.peak_bytes is not None
    assert there.spilled_bytes == there.peak_bytes[1] - 0.6 * 1.5e9 > 0
    assert "spills up to" in repr(there)
    assert "disk" not in " ".join(there.warnings["Finding"])
    enough = dasfprof.estimate(x + 1, workers=[1], memory_limit="4 GB")
    assert enough.spilled_bytes == 0.0
    monkeypatch.setattr(assumed, "disk_usage", lambda place: SimpleNamespace(free=10**6))
    short = dasfprof.estimate(x + 1, workers=[1], memory_limit="1.5 GB")
    assert short.free_disk == 10**6
    (warning,) = short.warnings["Finding"]
    assert warning.endswith("its disk has 1 MB free.")


def test_nothing_is_computed(tmp_path: Path) -> None:
    frame = dd.from_pandas(pd.DataFrame({"a": range(9)}), npartitions=3)

    def fail(part: pd.DataFrame) -> pd.DataFrame:
        assert not len(part), "nothing is computed"
        return part

    mapped = frame.map_partitions(fail, meta=frame._meta)
    assert dasfprof.estimate(mapped.a.sum()).tasks
    found = dasfprof.estimate(mapped.set_index("a"))
    assert found.tasks is None
    assert "Dask computes" in found.peak_unknown
    assert "cannot be estimated" in repr(found)
    assert found.layers.empty


def test_collections_made_of_delayed_functions() -> None:
    """Delayed functions seem to have all attributes."""
    load = dask.delayed(pd.DataFrame)
    frame = dd.from_delayed([load({"a": [n]}) for n in range(3)], meta={"a": "i8"})
    found = dasfprof.estimate(frame)
    assert (found.tasks or 0) >= 6
    assert found.warnings.empty


def test_text_has_bytes_where_they_are_known(tmp_path: Path) -> None:
    """Ten texts have 7 bytes each, plus 8 bytes for an offset. Dictionaries hide bytes."""
    frame = dd.from_pandas(pd.DataFrame({"s": ["abcdefg"] * 1000}), npartitions=1)
    if not isinstance(frame._meta.s.dtype, np.dtype):
        assert dasfprof.estimate(frame).layers["Bytes"].iloc[0] == 15_000
    frame.to_parquet(tmp_path / "table")
    found = dasfprof.estimate(dd.read_parquet(tmp_path / "table"))
    assert np.isnan(found.layers["Bytes"].iloc[0])
    assert "column 's'" in found.layers["Unknown"].iloc[0]


def test_as_a_document_and_in_a_notebook() -> None:
    found = dasfprof.estimate(da.ones((10, 10), chunks=5).sum(), workers=2, memory_limit="1 GB")
    unknown = dasfprof.estimate(dask.delayed(abs)(1))
    for estimate in found, unknown:
        document = json.loads(json.dumps(estimate.to_dict()))
        Draft202012Validator(read_schema("estimate")).validate(document)
        assert document["tasks"] == estimate.tasks
    assert found.to_dict()["memory_limit"] == 1e9
    assert unknown.to_dict()["peak_bytes"] is None
    assert "<table" in found._repr_html_()
    assert "holds" in repr(found)


def test_arguments_that_are_refused() -> None:
    for arguments, words in (
        ({"workers": 0}, "workers=0"),
        ({"workers": [1, 0]}, "workers="),
        ({"workers": "two"}, "workers='two'"),
        ({"memory_limit": "much"}, "memory_limit='much'"),
        ({"memory_limit": -1}, "memory_limit=-1"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            dasfprof.estimate(da.ones(4, chunks=2), **arguments)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_million_tasks() -> None:
    """The limit does not include what Dask needs to generate the tasks."""
    from dasfprof.handles.estimation.assumed_cluster import assumed_cluster
    from dasfprof.handles.estimation.estimate import estimate_graph

    source = {("load", n): (abs, n) for n in range(500_000)}
    graph = source | {("inc", n): (abs, ("load", n)) for n in range(500_000)}
    begin = process_time()
    keys = [("inc", n) for n in range(500_000)]
    found = estimate_graph(graph, keys, [graph], assumed_cluster(4, None))
    assert found.tasks == 1_000_000
    assert process_time() - begin < 50  # 10 s on a quiet machine
    assert key_split(found.layers["Function"].iloc[0]) == "load"


TOLD = ["Function", "Tasks", "Expected (s)", "Rests On", "Runs", "Task Runs"]


def load(x: int) -> int:
    raise AssertionError("nothing is computed")


def scale(x: int) -> int:
    raise AssertionError("nothing is computed")


def rows(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table[list(names)].itertuples(index=False)]


def layers(collection: Any, history: Any) -> pd.DataFrame:
    return dasfprof.estimate(collection, history=history).layers


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Write two runs: `load` takes 1 and 3 s at line 1 and 10 s at line 2, then 6 s at line 1."""
    for name, runs in {
        "first": [(1, 10, 0.0, 1.0), (2, 10, 1.0, 3.0), (3, 20, 4.0, 10.0)],
        "second": [(4, 10, 0.0, 6.0)],
    }.items():
        place, keys = tmp_path / name, [f"load-{number:032x}" for number, *_ in runs]
        told = zip(keys, runs, strict=True)
        write_run(place, [(key, [], *one[2:], FIRST) for key, one in told], uuid=name)
        told = zip(keys, runs, strict=True)
        write_lines(place, [(-2.0, one[1], key, []) for key, one in told], uuid=name)
    return tmp_path


@pytest.fixture
def hooks() -> Iterator[None]:
    place_hooks()
    yield
    remove_hooks()


def built_at(number: int, text: str) -> Any:
    """Run text as a line of the program of the earlier runs."""
    names: dict[str, Any] = {"load": dask.delayed(load), "scale": dask.delayed(scale)}
    exec(compile("\n" * (number - 1) + f"made = {text}", FILE, "exec"), names)
    return names["made"]


def test_by_the_line_that_built(hooks: None, earlier: Path) -> None:
    """Line 1 has means of 2 s and 6 s, so 4 s. Line 2 has 10 s in one run."""
    parts = [*built_at(1, "[load(i) for i in range(5)]"), *built_at(2, "[load(7), load(8)]")]
    whole = dask.delayed(scale)(parts)
    table = layers(whole, earlier)
    assert {row[0]: row[1:] for row in rows(table, "Line", *TOLD) if row[1] == "load"} == {
        "pipeline.py:1": ("load", 5, 20.0, "line", 2, 3),
        "pipeline.py:2": ("load", 2, 20.0, "line", 1, 1),
    }
    last = table.iloc[-1]
    assert last["Function"] == "scale"
    assert last["Line"].startswith("test_estimate.py:")
    assert sorted(last["Takes"].split(", ")) == ["0", "1"]
    assert pd.isna(last["Expected (s)"])
    assert rows(table, "Rests On", "Runs", "Task Runs")[-1] == ("nothing recorded", 0, 0)


def test_by_the_function_where_no_line_is_known(earlier: Path) -> None:
    """The means are (1 + 3 + 10) / 3 s and 6 s, with a median of 16/3 s."""
    loaded = dask.delayed(load)(1)
    (row,) = rows(layers(loaded, earlier), "Line", *TOLD)
    assert row[:3] == (None, "load", 1)
    assert row[3] == pytest.approx((14 / 3 + 6) / 2)
    assert row[4:] == ("function", 2, 4)
    first = TraceAnalyser(earlier / "first", progress=False)
    assert rows(layers(loaded, first), *TOLD) == [
        ("load", 1, pytest.approx(14 / 3), "function", 1, 3)
    ]


def test_a_line_without_task_runs_of_the_function(hooks: None, earlier: Path) -> None:
    table = layers(built_at(4, "load(1)"), [earlier / "second"])
    assert rows(table, "Line", *TOLD) == [("pipeline.py:4", "load", 1, 6.0, "function", 1, 1)]


def collections() -> dict[str, Any]:
    frame = dd.from_pandas(pd.DataFrame({"a": range(8), "b": range(8)}), npartitions=2)
    return {
        "array": (da.ones((8, 10), chunks=(2, 10)) + 1).sum(),
        "dataframe": frame[frame.a > 2].groupby("b").a.sum(),
        "bag": db.from_sequence(range(6), npartitions=3).map(abs).sum(),
        "delayed": dask.delayed(sum)([dask.delayed(abs)(-1), dask.delayed(abs)(2)]),
    }


@pytest.mark.parametrize("name", [*collections()])
def test_the_layers_are_those_that_run(name: str, client: Client, tmp_path: Path) -> None:
    """The run is the oracle: the estimate for the same graph expects its total thread time."""
    collection = collections()[name]
    before = str(collection.__dask_keys__())
    with dasfprof.profile(client, directory=tmp_path) as run:
        collection.compute()
    ran = run.analyser(progress=False).plan()
    table = layers(collection, tmp_path)
    assert str(collection.__dask_keys__()) == before
    assert sorted(rows(table, "Function", "Tasks")) == sorted(rows(ran, "Function", "Tasks"))
    assert set(table["Rests On"]) == {"function"}
    assert table["Expected (s)"].sum() == pytest.approx(ran["Thread Time (s)"].sum())
    text = table["Layer"].isna()
    assert table["Chunks"].isna().equals(text)
    assert (table["Chunks"] == table["Tasks"])[~text].all()


def test_results_that_are_there_are_not_planned(client: Client, earlier: Path) -> None:
    kept = da.ones(4, chunks=2).persist()
    assert "ones_like" not in set(layers(kept + 1, earlier)["Function"])


def test_what_cannot_be_planned(tmp_path: Path, earlier: Path) -> None:
    array = da.ones(4, chunks=2)
    (tmp_path / "empty").mkdir()
    for collection, history, error, words in (
        (17, earlier, InvalidArgumentError, r"17 of type int is not a collection"),
        (array, [], InvalidArgumentError, r"history=\[\] contains no run"),
        (array, [17], InvalidArgumentError, "of type int"),
        (array, tmp_path / "nowhere", SourceNotFoundError, "nowhere"),
        (array, tmp_path / "empty", SourceNotFoundError, "no run in the directory"),
    ):
        with pytest.raises(error, match=words):
            layers(collection, history)
