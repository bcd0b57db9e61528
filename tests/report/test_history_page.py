"""The index page of a directory's runs: its figures, its chart, its links to reports."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opened_pages import Opener
from traces import Plan, Task
from traces.hung import hung

import dasfprof
from dasfprof.analysis.history import history
from dasfprof.cli.main import cli
from dasfprof.report.page.history import write_history

HOSTILE = "<img src=x onerror=alert(1)>{{style}}"


def write(
    directory: Path,
    number: int,
    seconds: float,
    name: str = "load",
    count: int = 2,
    key: str = "f",
    dask: str = "2026.7.1",
) -> None:
    """Write a run of tasks that take so many seconds together."""
    each = seconds / count
    tasks = [Task((key, n), 0, n * each, (n + 1) * each) for n in range(count)]
    run = f"{name}-{1_790_000_000 + number}"
    facts: dict[str, Any] = {"run_created": 1_790_000_000.0 + number, "versions": {"dask": dask}}
    Plan(tasks, 1, 2, run=run, run_uuid=run, **facts).write_files(directory)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that got slower, that grew, did not end or have a hostile name, and their page."""
    place = tmp_path_factory.mktemp("history")
    for number, wall in enumerate([4.0, 4.1, 3.9, 5.0, 5.1, 4.9]):
        write(place / "traces", number, wall)
    for number, count, dask in [(20, 4, "2026.7.1"), (21, 4, "2026.7.1"), (22, 6, "2026.8.0")]:
        write(place / "traces", number, 4.0, "grown", count, dask=dask)
    hung().write(place / "traces" / "inner")
    write(place / "traces", 9, 2.0, HOSTILE.replace("/", ""))
    (place / "pages").mkdir()
    out = place / "pages" / "index.html"
    done = CliRunner().invoke(cli, ["history", "--html", str(out), str(place / "traces")])
    assert done.exit_code == 0, done.output
    assert "11 runs" in " ".join(done.output.split())  # a long path makes it two lines
    return place


@pytest.fixture
def page(open_page: Opener, place: Path) -> Any:
    return open_page(place / "pages" / "index.html", ready=False).tab


def section(tab: Any, name: str) -> Any:
    return tab.locator("section", has=tab.locator("h2", has_text=name))


def test_the_table_is_that_of_history(page: Any, place: Path) -> None:
    table = dasfprof.history(place / "traces", progress=False)
    own = table[table["Pipeline"] == "load"][::-1]
    rows = section(page, "load").locator("tbody tr")
    shown = [rows.nth(n).locator("td").all_text_contents() for n in range(rows.count())]
    assert [row[0] for row in shown] == own["Run"].tolist()
    assert [float(row[2]) for row in shown] == own["Wall Time (s)"].round(3).tolist()
    assert [float(row[3]) for row in shown] == own["Efficiency (%)"].round(1).tolist()
    headings = section(page, "load").locator("thead th").all_text_contents()
    assert [row[headings.index("Change")] for row in shown] == own["Change"].tolist()
    assert shown[0][1] == "2026-09-21 14:13:25"


def test_wall_times_are_drawn_and_a_run_that_did_not_end_is_a_cross(page: Any) -> None:
    points = section(page, "load").locator("circle")
    places = [
        tuple(float(points.nth(n).get_attribute(name)) for name in ("cx", "cy")) for n in range(6)
    ]
    # Equal steps to the right; heights in proportion to the seconds, of which 3.9 is the least.
    steps = [after[0] - before[0] for before, after in itertools.pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 5, abs=0.11)
    rules = section(page, "load").locator(".rule")
    zero = max(float(rules.nth(n).get_attribute("y1")) for n in range(3))
    heights = [zero - y for _, y in places]
    assert heights[4] / heights[2] == pytest.approx(5.1 / 3.9, rel=0.01)
    cross = page.locator(".unended")
    assert cross.count() == 1
    assert "did not end" in cross.locator("title").text_content()
    # Hostile names are texts.
    assert page.locator("img").count() == 0
    assert section(page, "<img src=x").count() == 1
    assert "{{style}}" in section(page, "<img src=x").locator("h2").text_content()


def test_a_name_that_no_encoding_can_write_is_charted(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path, number, 3.0, count=3, key="bad\udcff")
    page = write_history(history(tmp_path), tmp_path / "index.html").read_text("utf-8")
    assert page.count('<svg class="chart"') == 1


def test_with_json_the_page_is_written_too(tmp_path: Path) -> None:
    write(tmp_path, 0, 1.0)
    done = CliRunner().invoke(
        cli, ["history", "--json", "--html", str(tmp_path / "new" / "i.html"), str(tmp_path)]
    )
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)["runs"]) == 1
    assert (tmp_path / "new" / "i.html").is_file()
