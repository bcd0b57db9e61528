"""A report that takes the report of another run: dropped or chosen, read in the page alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from compared_runs import pixels, write_steps
from opened_pages import OpenedPage, Opener
from traces.hung import hung
from traces.noisy import Noisy

from dasfprof import TraceAnalyser, compare


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    changed = Noisy(times={"clean": 2.0}, names={"total": "all&more"})
    return {"old": Noisy().write(place / "a", 1), "new": changed.write(place / "b", 2)}


@pytest.fixture(scope="module")
def reports(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("reports")
    return {
        name: TraceAnalyser(run, progress=False).report(place / f"{name}.html")
        for name, run in runs.items()
    }


def choose(page: OpenedPage, path: Path) -> str:
    """Choose a file; return what the page says of both."""
    page.tab.set_input_files("#other-report", path)
    page.until(
        lambda: page.tab.is_visible("#compared-words") or page.tab.is_visible("#compared-failed")
    )
    failed = page.tab.is_visible("#compared-failed")
    return page.text("#compared-failed" if failed else "#compared-words")


def functions(page: OpenedPage) -> dict[str, list[str]]:
    rows = page.tab.locator("#compared-functions .rows .row")
    cells = [rows.nth(n).locator("div").all_text_contents() for n in range(rows.count())]
    return {name: values for name, *values in cells}


def test_both_runs_from_the_data_of_both_pages(
    open_page: Opener, runs: dict[str, Path], reports: dict[str, Path]
) -> None:
    page = open_page(reports["old"])
    assert not page.tab.is_visible("#compared")
    said = choose(page, reports["new"])
    comparison = compare(runs["old"], runs["new"])
    before, after = (f"{seconds:.3g} s" for seconds in comparison.verdict.means)
    assert f"From {before} to {after}" in said
    assert "chance may be the cause" in said
    expected = comparison.functions.set_index("Function")
    shown = functions(page)
    assert set(shown) == {"load", "clean", "sum", "total", "all&more"}
    for name in ("load", "clean", "sum"):
        numbers = [float(text) for text in shown[name]]
        labels = ["Task Runs Before", "Task Runs After", "Median Before (s)", "Median After (s)"]
        labels += ["Total Before (s)", "Total After (s)"]
        assert numbers[:-1] == pytest.approx(expected.loc[name, labels].tolist(), abs=1e-3)
        assert numbers[-1] == pytest.approx(numbers[-2] - numbers[-3], abs=2e-3)
    assert shown["total"][1] == shown["all&more"][0] == "NA"
    page.tab.locator("#compared-functions .rows .row", has_text="clean").click()
    assert page.text(".chosen").startswith("clean: before 24 ")
    titles = page.texts("#compared-timelines h3")
    assert titles == ["Before: pipeline-1790000001", "After: pipeline-1790000002"]


def test_a_dropped_file_as_a_chosen_one(open_page: Opener, tmp_path: Path) -> None:
    reports = [
        TraceAnalyser(write_steps(tmp_path / name, number=n), progress=False).report(
            tmp_path / f"{name}.html"
        )
        for n, name in enumerate("ab")
    ]
    page = open_page(reports[0])
    page.tab.evaluate(
        """(text) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "b.html", { type: "text/html" }));
            const about = { dataTransfer: transfer, bubbles: true, cancelable: true };
            document.body.dispatchEvent(new DragEvent("drop", about));
        }""",
        reports[1].read_text(),
    )
    page.until(lambda: page.tab.is_visible("#compared-words"))
    whole = pixels(page, "before")
    assert pixels(page, "after") == whole
    page.tab.locator("[data-side=before] .overlay").focus()
    page.tab.keyboard.press("+")
    assert pixels(page, "before") == pixels(page, "after") != whole
    # The page's own timeline is as it was.
    assert page.text("#window").startswith("0")


def test_the_same_report_and_one_that_did_not_end(
    open_page: Opener, reports: dict[str, Path], tmp_path: Path
) -> None:
    page = open_page(reports["old"])
    assert choose(page, reports["old"]) == "This is the same run twice."
    hung().write(tmp_path / "hung")
    path = TraceAnalyser(tmp_path / "hung", progress=False).report(tmp_path / "hung.html")
    page.tab.evaluate("document.getElementById('compared').hidden = true")
    assert "did not end" in choose(page, path)


@pytest.mark.parametrize("kind", ["text", "cut", "damaged", "comparison", "other version", "empty"])
def test_files_that_are_no_report(
    open_page: Opener, runs: dict[str, Path], reports: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    whole = reports["new"].read_text()
    path = tmp_path / "other.html"
    contents = {
        "text": "nothing of ours",
        "empty": "",
        "cut": whole[: whole.index('id="column-keys/texts">')],
        "damaged": whole.replace(
            'id="column-picture/starts">', 'id="column-picture/starts">AAAA', 1
        ),
        "other version": whole.replace('{"data":2,', '{"data":1,', 1),
    }
    if kind == "comparison":
        compare(runs["old"], runs["new"]).report(path)
    else:
        path.write_text(contents[kind])
    page = open_page(reports["old"])
    said = choose(page, path)
    assert f"{path.name} cannot be compared: " in said
    assert not page.tab.is_visible("#compared-parts")
