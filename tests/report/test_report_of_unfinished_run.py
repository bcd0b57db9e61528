"""An unfinished task in the report, as a bar with an open end, and in exported files."""

import json
from pathlib import Path

import pandas as pd
import pytest
from opened_pages import RULER, Opener
from traces.hung import FIRST, Hung, hung

from dasfprof import TraceAnalyser, export


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    ended = [{"key": "g-1", "known": 2.0, "state": "memory", "why": "task-finished-1", **FIRST}]
    run = hung(ended=[("g-1", 0.0, 2.0)], runs=ended, closed=False)
    return run.write(tmp_path_factory.mktemp("traces") / "hung")


def test_its_bar_is_found_and_told_as_open(
    open_page: Opener, analyser: TraceAnalyser, tmp_path: Path
) -> None:
    page = open_page(analyser.report(tmp_path / "hung.html"), "#view=flatten")
    page.tab.select_option("#only-function", label="f")
    # The thread of the hanging task is the first or second track; both last to the end.
    for track in (0, 1):
        page.tab.mouse.click(*page.at(0.9, RULER + 26 * track + 10))
        if page.details().get("Key") == "f-1":
            break
    page.until(lambda: page.details().get("Key") == "f-1")
    details = page.details()
    assert details["State"] == "running"
    assert details["Duration"].startswith("20")
    exported = pd.DataFrame(page.download("#task-csv"))
    assert exported["State"].tolist() == ["running"]


def test_details_tell_how_the_process_of_a_lost_worker_ended(
    tmp_path: Path, open_page: Opener
) -> None:
    lost = Hung(open={"sum-1": {}}, left=(9.0, "worker-lost"), exit_code=-9)
    page = open_page(lost.write(tmp_path).report(tmp_path / "report.html"), "#view=flatten")
    page.search("sum-1", "1 found")
    assert "SIGKILL" in page.follow("sum-1")["Worker process"]


def test_exports_have_it(analyser: TraceAnalyser, tmp_path: Path) -> None:
    path = export(analyser, tmp_path / "hung.json", to="perfetto")
    events = json.loads(path.read_text())["traceEvents"]
    (begun,) = [event for event in events if event["ph"] == "B" and event["name"] == "f"]
    assert "dur" not in begun
    assert begun["args"]["state"] == "running"
    directory = export(analyser, tmp_path / "tables", to="parquet")
    (row,) = pd.read_parquet(directory / "under_way.parquet").to_dict("records")
    assert (row["key"], row["state"]) == ("f-1", "executing")
    stacks = pd.read_parquet(directory / "stacks.parquet").set_index("number")["frames"]
    assert json.loads(stacks[row["stack"]])[0] == ["f", "/home/me/work.py", 7]
    csv = pd.read_csv(export(analyser, tmp_path / "csv", to="csv") / "processed_tasks.csv")
    assert dict(zip(csv["Task"], csv["Status"], strict=True)) == {"f-1": "running", "g-1": "memory"}
