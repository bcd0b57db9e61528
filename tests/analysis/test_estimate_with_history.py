"""Estimates with a history: layers as Dask would run them, and seconds by earlier runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pytest
from clusters import client_of
from distributed import Client
from lined_runs import FILE, FIRST, Run, write_lines, write_run

import dasfprof
from dasfprof import TraceAnalyser
from dasfprof.errors import InvalidArgumentError, SourceNotFoundError
from dasfprof.recording.dask_internals.graphs import place_hooks, remove_hooks

pytestmark = pytest.mark.dask_internals

client = client_of(1, 2)
TOLD = ["Function", "Tasks", "Expected (s)", "Rests On", "Runs", "Task Runs"]


def load(x: int) -> int:
    raise AssertionError("nothing is computed")


def scale(x: int) -> int:
    raise AssertionError("nothing is computed")


def rows(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in table[list(names)].itertuples(index=False)]


def layers(collection: Any, history: Any) -> pd.DataFrame:
    return dasfprof.estimate(collection, history=history).layers


def hashed(name: str, number: int) -> str:
    return f"{name}-{number:032x}"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Two runs: `load` takes 1 and 3 s at line 1 and 10 s at line 2; then 6 s at line 1."""
    first: list[Run] = [
        (hashed("load", 1), [], 0.0, 1.0, FIRST),
        (hashed("load", 2), [], 1.0, 3.0, FIRST),
        (hashed("load", 3), [], 4.0, 10.0, FIRST),
    ]
    second: list[Run] = [(hashed("load", 4), [], 0.0, 6.0, FIRST)]
    for name, runs in (("first", first), ("second", second)):
        write_run(tmp_path / name, runs, uuid=name)
    built = [(-2.0, 10, hashed("load", 1), []), (-2.0, 10, hashed("load", 2), [])]
    write_lines(tmp_path / "first", [*built, (-2.0, 20, hashed("load", 3), [])], uuid="first")
    write_lines(tmp_path / "second", [(-2.0, 10, hashed("load", 4), [])], uuid="second")
    return tmp_path


@pytest.fixture
def hooks() -> Iterator[None]:
    place_hooks()
    yield
    remove_hooks()


def built_at(number: int, text: str) -> Any:
    """Run text that stands in a line of the program of the earlier runs."""
    names: dict[str, Any] = {"load": dask.delayed(load), "scale": dask.delayed(scale)}
    exec(compile("\n" * (number - 1) + f"made = {text}", FILE, "exec"), names)
    return names["made"]


def test_by_the_line_that_built(hooks: None, earlier: Path) -> None:
    """Line 1: means of 2 s and 6 s, so 4 s; line 2: 10 s in one run."""
    parts = [*built_at(1, "[load(i) for i in range(5)]"), *built_at(2, "[load(7), load(8)]")]
    whole = dask.delayed(scale)(parts)
    table = layers(whole, earlier)
    assert {row[0]: row[1:] for row in rows(table, "Line", *TOLD) if row[1] == "load"} == {
        "pipeline.py:1": ("load", 5, 20.0, "line", 2, 3),
        "pipeline.py:2": ("load", 2, 20.0, "line", 1, 1),
    }
    last = table.iloc[-1]
    assert last["Function"] == "scale"
    assert last["Line"].startswith("test_estimate_with_history.py:")
    assert sorted(last["Takes"].split(", ")) == ["0", "1"]
    assert pd.isna(last["Expected (s)"])
    assert rows(table, "Rests On", "Runs", "Task Runs")[-1] == ("nothing recorded", 0, 0)


def test_by_the_function_where_no_line_is_known(earlier: Path) -> None:
    """Means of (1 + 3 + 10) / 3 s and 6 s: their median is 16/3 s."""
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
    """The run itself is the oracle: what is planned again expects all of its thread seconds."""
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


def test_the_old_name(earlier: Path) -> None:
    loaded = dask.delayed(load)(1)
    with pytest.warns(DeprecationWarning, match="use dasfprof.estimate"):
        table = dasfprof.plan(loaded, earlier)
    assert table.equals(layers(loaded, earlier))


def test_what_cannot_be_planned(tmp_path: Path, earlier: Path) -> None:
    array = da.ones(4, chunks=2)
    with pytest.raises(InvalidArgumentError, match=r"17 of type int is not a collection"):
        layers(17, earlier)
    with pytest.raises(InvalidArgumentError, match=r"history=\[\] contains no run"):
        layers(array, [])
    with pytest.raises(InvalidArgumentError, match="of type int"):
        layers(array, [17])  # type: ignore[list-item]
    with pytest.raises(SourceNotFoundError):
        layers(array, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceNotFoundError, match="no run in the directory"):
        layers(array, tmp_path / "empty")
