"""Every page passes axe-core's rules for people with a screen reader, a keyboard or weak sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opened_pages import EVENTS, Opener
from sampled_runs import write_sampled_run
from traces import Plan, Task, filled, write_trace
from traces.hung import hung
from traces.noisy import Noisy

from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli
from dasfprof.handles.comparison import compare

axe = pytest.importorskip("axe_playwright_python.sync_playwright")


def violations(tab: Any) -> list[str]:
    """Return the rules that a page breaks, and where."""
    found = axe.Axe().run(tab).response["violations"]
    return [f"{one['id']}: {[node['html'] for node in one['nodes']][:5]}" for one in found]


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Return a colour scheme that a browser prefers."""
    return str(request.param)


@pytest.mark.parametrize("what", ["sampled", "failed", "unfinished", "without tasks"])
def test_reports(what: str, scheme: str, open_page: Opener, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    if what == "sampled":
        traces.mkdir()
        write_sampled_run(traces)
    elif what == "failed":
        traces.mkdir()
        write_trace(traces / "mine-TracePlugin-node-0.msgpack", *EVENTS)
    elif what == "unfinished":
        hung().write(traces)
    else:
        Plan([]).write_files(traces)
    report = TraceAnalyser(traces, progress=False).report(tmp_path / "run.html")
    page = open_page(report, color_scheme=scheme, bypass_csp=True)
    assert violations(page.tab) == []


def test_a_report_with_a_task_run_and_a_function_opened(
    scheme: str, open_page: Opener, tmp_path: Path
) -> None:
    tasks = [*filled(["load", "clean"], 0.4, count=20), Task("sum-1", 0, 9.0, 9.5)]
    report = Plan(tasks).write(tmp_path / "traces").report(tmp_path / "run.html")
    for fragment in ("#view=flatten&task=sum-1", "#about=load"):
        page = open_page(report, fragment, color_scheme=scheme, bypass_csp=True)
        assert violations(page.tab) == []


def test_comparisons(scheme: str, open_page: Opener, tmp_path: Path) -> None:
    changed = Noisy(times={"clean": 2.0})
    before = [Noisy().write(tmp_path / "a" / str(n), n) for n in range(3)]
    after = [changed.write(tmp_path / "b" / str(n), 50 + n) for n in range(3)]
    report = compare(before, after).report(tmp_path / "pair.html")
    page = open_page(report, color_scheme=scheme, bypass_csp=True)
    assert violations(page.tab) == []


def test_histories(scheme: str, browser: Any, tmp_path: Path) -> None:
    for number in range(3):
        created = 1_790_000_000.0 + number
        run = f"load-{created:.0f}"
        plan = Plan([Task("f-1", 0, 0.0, 4.0)], run=run, run_uuid=run, run_created=created)
        plan.write_files(tmp_path / "traces")
    out = tmp_path / "history.html"
    done = CliRunner().invoke(cli, ["history", "--html", str(out), str(tmp_path / "traces")])
    assert done.exit_code == 0, done.output
    tab = browser.new_page(color_scheme=scheme, bypass_csp=True)
    tab.goto(out.as_uri())
    assert violations(tab) == []
    tab.close()
