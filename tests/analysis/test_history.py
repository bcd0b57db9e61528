"""The history of a directory: its figures, trends, and stored summaries."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from traces import Plan, Task
from traces.hung import hung

import dasfprof
from dasfprof.analysis.history.over_time import _changes_of, _trend_of
from dasfprof.analysis.history.summary import FILE
from dasfprof.cli.main import cli


def write(directory: Path, number: int, seconds: float, name: str = "load", tasks: int = 2) -> None:
    """Write a run of consecutive tasks with this total duration."""
    each = seconds / tasks
    plan = [Task(f"f-{n}", 0, n * each, (n + 1) * each) for n in range(tasks)]
    run, created = f"{name}-{1_790_000_000 + number}", 1_790_000_000.0 + number
    directory.mkdir(exist_ok=True)
    Plan(plan, 1, 2, run=run, run_uuid=run, run_created=created).write_files(directory)


def history(directory: Path) -> pd.DataFrame:
    return dasfprof.history(directory, progress=False)


def test_a_run_is_a_row(tmp_path: Path) -> None:
    write(tmp_path, 0, 4.0)
    write(tmp_path / "inner", 1, 8.0, tasks=4)
    table = history(tmp_path)
    # One of the worker's two threads is busy all the time.
    columns = ["Wall Time (s)", "Efficiency (%)"]
    assert table[columns].round(6).to_numpy().tolist() == [[4.0, 50.0], [8.0, 50.0]]
    for column, values in {
        "Run": ["load-1790000000", "load-1790000001"],
        "Pipeline": ["load", "load"],
        "Task Runs": [2, 4],
        "Change": ["", "other graph"],
        "Began (UTC)": [pd.Timestamp(f"2026-09-21 14:13:2{n}") for n in (0, 1)],
    }.items():
        assert table[column].tolist() == values


def test_trend_of_the_wall_time() -> None:
    whole = {"pipeline": "load", "ended": True, "goes_on": False}
    for seconds, slope, p, trend in (
        ([4.0, 4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7], 0.1 / 4.35 * 100, 0.00084, "slower"),
        ([4.8, 4.6, 4.4, 4.2, 4.0, 3.8, 3.6, 3.4], -0.2 / 4.1 * 100, 0.00084, "faster"),
        ([4.0, 6.0, 3.0, 5.0, 7.0, 4.0, 3.0, 5.0], 0.0, 1.0, "none"),
        ([4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], 1 / 7 * 100, np.nan, "unknown"),  # too few
    ):
        runs = [whole | {"seconds": wall, "shape": "now"} for wall in seconds]
        found = _trend_of([whole | {"seconds": 9.0, "shape": "another graph"}, *runs])
        assert (found["Runs"], found["Compared Runs"]) == (len(seconds) + 1, len(seconds))
        assert found["Slope (%)"] == pytest.approx(slope, abs=1e-6)
        assert found["Trend"] == trend
        assert found["p-Value"] == pytest.approx(p, rel=0.02, nan_ok=True)
    ended = {"ended": True, "goes_on": False, "seconds": 4.0, "shape": "s"}
    assert _changes_of([ended, ended | {"goes_on": True}]) == ["", "still running"]


def test_pipelines_are_those_of_one_name(tmp_path: Path) -> None:
    for number, name, tasks in (0, "a", 2), (1, "b", 2), (2, "a", 3):
        write(tmp_path, number, 4.0, name=name, tasks=tasks)
    table = history(tmp_path)
    assert table["Run"].str[0].tolist() == ["a", "a", "b"]
    assert table["Change"].tolist() == ["", "other graph", ""]


def test_a_run_that_did_not_end(tmp_path: Path) -> None:
    hung().write(tmp_path)
    assert history(tmp_path)["Change"].tolist() == ["did not end"]


def test_known_runs_are_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 4.0)
    write(tmp_path, 1, 5.0)
    first = history(tmp_path)
    for path in tmp_path.glob("*.msgpack"):  # same size and age, but no longer traces
        facts = path.stat()
        path.write_bytes(b"x" * facts.st_size)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    write(tmp_path, 2, 6.0)
    second = history(tmp_path)
    pd.testing.assert_frame_equal(second.head(2), first)
    assert second["Wall Time (s)"].round(6).tolist() == [4.0, 5.0, 6.0]


def test_a_run_that_was_written_anew_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 4.0)
    history(tmp_path)
    for path in tmp_path.glob("*.msgpack"):
        path.unlink()
    write(tmp_path, 0, 6.0)
    assert history(tmp_path)["Wall Time (s)"].round(6).tolist() == [6.0]


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 4, "runs": [3]}'])
def test_damaged_summaries_are_made_again(tmp_path: Path, content: str) -> None:
    write(tmp_path, 0, 4.0)
    (tmp_path / FILE).write_text(content)
    assert len(history(tmp_path)) == 1
    assert json.loads((tmp_path / FILE).read_text())["version"] == 4


def test_nothing_to_list(tmp_path: Path) -> None:
    with pytest.raises(dasfprof.errors.SourceNotFoundError, match="no run in"):
        dasfprof.history(tmp_path)
    with pytest.raises(dasfprof.errors.SourceNotFoundError, match="does not exist"):
        dasfprof.history(tmp_path / "typo")


def test_the_command(tmp_path: Path) -> None:
    for number in range(8):
        write(tmp_path, number, 4.0 + number)
    write(tmp_path, 9, 1.0, name="other")
    run = CliRunner().invoke(cli, ["history", str(tmp_path)], env={"COLUMNS": "120"})
    assert run.exit_code == 0
    assert "load, 8 runs, slower by 13.3 % per run (p = 0.00084, 8 runs)" in run.stdout
    assert "other, 1 run\n" in run.stdout
    assert "█" * 16 in run.stdout
    document = json.loads(CliRunner().invoke(cli, ["history", "--json", str(tmp_path)]).stdout)
    assert [run["Wall Time (s)"] for run in document["runs"]][:2] == [4.0, 5.0]
    assert [trend["Trend"] for trend in document["trends"]] == ["slower", "unknown"]
    assert document["trends"][1]["p-Value"] is None
    assert CliRunner().invoke(cli, ["history", str(tmp_path / "no")]).exit_code == 1
