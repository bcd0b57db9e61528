"""All pages pass axe-core's rules for people with screen readers, keyboards or weak sight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opened_pages import OpenedPage, Opener, small_run
from sampled_runs import write_sampled_run
from traces import Plan
from traces.hung import hung
from traces.noisy import Noisy

from dasfprof import TraceAnalyser
from dasfprof.handles.comparison import compare

axe = pytest.importorskip("axe_playwright_python.sync_playwright")


@pytest.fixture(params=["light", "dark"])
def check(request: pytest.FixtureRequest, open_page: Opener) -> Callable[..., None]:
    """Return a function that opens a page in a colour scheme and checks all rules."""

    def open_and_check(path: Path, fragment: str = "", **options: Any) -> None:
        options |= {"color_scheme": request.param, "bypass_csp": True}
        page: OpenedPage = open_page(path, fragment, **options)
        broken = axe.Axe().run(page.tab).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]][:5]) for one in broken] == []

    return open_and_check


#: Functions that write a run, and further addresses in its report.
REPORTS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "sampled": (write_sampled_run, ("#view=flatten&task=nearest-2", "#about=nearest")),
    "failed": (small_run, ()),
    "unfinished": (lambda traces: hung().write(traces), ()),
    "without tasks": (lambda traces: Plan([]).write_files(traces), ()),
}


@pytest.mark.parametrize("what", REPORTS)
def test_reports(what: str, check: Callable[..., None], tmp_path: Path) -> None:
    write, places = REPORTS[what]
    write(tmp_path / "traces")
    report = TraceAnalyser(tmp_path / "traces", progress=False).report(tmp_path / "run.html")
    for fragment in ("", *places):
        check(report, fragment)


def test_comparisons(check: Callable[..., None], tmp_path: Path) -> None:
    changed = Noisy(times={"clean": 2.0})
    before = [Noisy().write(tmp_path / "a" / str(n), n) for n in range(3)]
    after = [changed.write(tmp_path / "b" / str(n), 50 + n) for n in range(3)]
    check(compare(before, after).report(tmp_path / "pair.html"))
