"""The header of a report: system, versions and settings of a run."""

from pathlib import Path

import dask
from opened_pages import Opener, small_run
from traces import Plan, Task, filled, write_trace

from dasfprof import TraceAnalyser, write_report


def test_hosts_cores_versions_and_program(open_page: Opener, tmp_path: Path) -> None:
    versions = {"python": "3.13.0", "dask": "2026.8.0", "distributed": "2026.8.0", "numpy": "2.5"}
    about = {"host": "node", "cores": 8, "versions": versions}
    small_run(tmp_path, **about)
    program = {"command": "python <b>train</b>.py", "command_arguments": 1}
    write_trace(tmp_path / "mine-StepRecorder-node-client.msgpack", **about, **program)
    page = open_page(write_report(TraceAnalyser(tmp_path), tmp_path / "mine.html"))
    assert page.text("#subtitle").endswith(" UTC · node: 2 workers, 8 cores")
    assert page.text("#recorded-with") == (
        "python <b>train</b>.py (1 argument, not recorded) · "
        "python 3.13.0, dask 2026.8.0, distributed 2026.8.0"
    )

    # Unknown facts are left out.
    page = open_page(small_run(tmp_path / "bare", versions={}).report(tmp_path / "bare.html"))
    assert page.text("#subtitle").endswith("node: 2 workers")
    assert page.text("#recorded-with") == ""


def test_the_timeline_begins_on_the_first_screen(open_page: Opener, tmp_path: Path) -> None:
    tasks = filled(["load", "clean"], 0.371, count=40)
    tasks += [Task(f"late-{n}", n % 2, 9.0, 9.313, arrival=8.9, cpu=0.1) for n in range(2)]
    tasks += [Task(f"fails-{n}", 1, 9.4 + n, 9.5 + n, state="erred", size=0) for n in range(2)]
    analyser = Plan(tasks, graphs=(0.0, 8.9)).write(tmp_path / "traces")
    report = analyser.report(tmp_path / "run.html")
    page = open_page(report, viewport={"width": 1280, "height": 800})
    told = page.tab.locator("#findings > ol:first-of-type > li")
    assert told.count() >= min(3, len(analyser.diagnose()))
    assert page.canvas()["y"] < 800, "the picture, not the heading alone"
    # Errors first.
    assert analyser.diagnose()["Rule"].iloc[0] == "failed-tasks"
    assert "failed" in told.first.text_content()


def test_what_a_run_cost_where_a_price_is_set(open_page: Opener, tmp_path: Path) -> None:
    # Two workers existed for two hours, each with a thread that was busy for one hour.
    tasks = [Task("load-0", 0, 0.0, 3600.0), Task("load-1", 1, 3600.0, 7200.0)]
    used = [(who, at, {}) for who in (0, 1) for at in (0.0, 7200.0)]
    held = [(who, at, {"state": "running"}) for who, at, _ in used]
    analyser = Plan(tasks, threads=1, used=used, held=held).write(tmp_path / "traces")
    with dask.config.set({"dasfprof.price": "0.5 EUR"}):
        priced = analyser.report(tmp_path / "priced.html")
    page = open_page(priced)
    told = dict(zip(page.texts("#tiles dt"), page.texts("#tiles dd:not(.about)"), strict=True))
    assert told["Cost"] == "2.00 EUR"
    assert "4.00 worker-hours, 50 % of them idle" in page.texts("#tiles dd.about")
    plain = open_page(analyser.report(tmp_path / "plain.html"))
    assert "Cost" not in plain.texts("#tiles dt")
