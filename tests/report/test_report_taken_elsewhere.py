"""What people take out of a report: pages of paper, findings as Markdown, a picture, a link."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from exported_traces import MORE_EVENTS, analyser_of
from opened_pages import LOAD, SUM, OpenedPage, compute

from dasfprof import TraceAnalyser
from dasfprof.report.page.html import write_report


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    hostile = compute("a_*b*_<i>@me-1", 12.0, 30.0, 0, state="erred", exception="ValueError: `x`")
    return analyser_of(tmp_path_factory.mktemp("trace") / "run", [*MORE_EVENTS, hostile])


@pytest.fixture(scope="module")
def report(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(analyser, tmp_path_factory.mktemp("page") / "run.html", title="my run")


def shown(page: OpenedPage, selector: str) -> bool:
    return bool(page.tab.locator(selector).first.is_visible())


def on_paper(page: OpenedPage) -> None:
    """Bring the page to the state in which it is printed."""
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.tab.emulate_media(media="print")


def test_paper_has_findings_accounting_timeline_and_first_rows(
    open_page: Any, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report, color_scheme="dark")
    assert not shown(page, ".printed")
    on_paper(page)
    for selector in ("#verdict", "#findings li", "#accounting", "#timeline .picture", ".printed"):
        assert shown(page, selector), selector
    for selector in (".table", "#timeline-section .tools", "#copy-findings", "#strip", ".overlay"):
        assert not shown(page, selector), selector
    tasks = page.texts("#task-table .printed tbody tr")
    longest = analyser.trace.tasks["duration"].sort_values(ascending=False)
    assert len(tasks) == 12 < len(longest)
    assert tasks[0].startswith("a_*b*_<i>@me-1")
    assert page.text("#task-table .printed p").startswith(f"First 12 of {len(longest)} rows.")
    assert page.tab.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    # Colours that stand for something are printed where backgrounds are not.
    for selector in (".classes i", ".reading i", "#gap-legend i", "#classes > div"):
        swatch = page.tab.locator(selector).first
        adjusted = swatch.evaluate("(one) => getComputedStyle(one).printColorAdjust")
        assert adjusted == "exact", selector
    assert corner(page) == [255, 255, 255], "the picture is light too"
    page.tab.evaluate("dispatchEvent(new Event('afterprint'))")
    page.tab.emulate_media(media="screen")
    assert page.texts(".printed") == []
    assert shown(page, ".table")
    assert max(corner(page)) < 64


def corner(page: OpenedPage) -> list[int]:
    """Give the colour of the timeline's first pixel, which is background."""
    colour: list[int] = page.tab.evaluate(
        """() => { const canvas = document.querySelector("#timeline .picture");
        const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)]; }"""
    )
    return colour


def test_paper_is_a4_and_nothing_is_cut(open_page: Any, report: Path) -> None:
    page = open_page(report)
    content = page.tab.pdf(prefer_css_page_size=True)
    boxes = re.findall(rb"MediaBox \[([^\]]+)\]", content)
    edges = {tuple(round(float(edge)) for edge in box.split()) for box in boxes}
    # A plan that is wider than a page lies across.
    assert {(0, 0, 595, 842)} <= edges <= {(0, 0, 595, 842), (0, 0, 842, 595)}
    on_paper(page)
    # A4 within its margins, upright and across: which of these is each.
    for width, height, across in ((695, 1000, False), (1023, 672, True)):
        page.tab.set_viewport_size({"width": width, "height": height})
        cut = page.tab.evaluate(
            """(across) => [...document.querySelectorAll("main *")].filter((one) =>
                one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1 &&
                !!one.closest(".across") === across)
                .map((one) => one.outerHTML.slice(0, 200))""",
            across,
        )
        assert cut == []
    # Nothing that says on a screen that columns go on covers those on paper.
    over = """() => [...document.querySelectorAll(".goes-on")].map(
        (one) => getComputedStyle(one, "::after").display)"""
    page.tab.emulate_media(media="screen")
    assert page.until(lambda: "block" in page.tab.evaluate(over))
    page.tab.emulate_media(media="print")
    assert set(page.tab.evaluate(over)) <= {"none"}


def test_findings_are_copied_as_markdown(
    open_page: Any, report: Path, analyser: TraceAnalyser
) -> None:
    page = open_page(report)
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.tab.click("#copy-findings")
    assert page.until(lambda: page.text("#copy-findings") == "Copied")
    text = page.tab.evaluate("navigator.clipboard.readText()")
    assert text.startswith("**my run** (")
    lines = text.strip().splitlines()
    findings = analyser.diagnose()
    assert len([line for line in lines if line.lstrip().startswith("- **")]) == len(findings) > 0
    assert lines[2].split()[0] == page.text("#verdict").split()[0]
    # No name is markup, and nobody of that name is called.
    assert "<i>" not in text
    assert "@me" not in text
    assert r"a\_\*b\*\_&#60;i&#62;&#64;me" in text


def test_the_picture_is_the_timeline_that_is_seen(open_page: Any, report: Path) -> None:
    page = open_page(report)
    with page.tab.expect_download() as waited:
        page.tab.click("#save-picture")
    assert waited.value.suggested_filename == "timeline.png"
    content = Path(waited.value.path()).read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    canvas = page.tab.evaluate(
        "(({ width, height }) => [width, height])(document.querySelector('#timeline .picture'))"
    )
    assert width == canvas[0]
    assert height > canvas[1], "its title and legend stand above it"
    data = b"".join(re.findall(rb"IDAT(.*?)(?=....IDAT|....IEND)", content, re.DOTALL))
    assert data
    assert len(set(zlib.decompressobj().decompress(data, 200_000))) > 16


def test_a_link_leads_to_what_is_seen(open_page: Any, report: Path) -> None:
    page = open_page(report)
    page.tab.click("text=By step")
    page.tab.select_option("#only-function", label=LOAD)
    page.tab.click("#copy-link")
    hash_ = page.until(lambda: page.tab.evaluate("location.hash"))
    assert parse_qs(hash_[1:]) == {"view": ["hierarchy"], "function": [LOAD]}
    other = open_page(report, hash_)
    assert other.tab.locator("input[name=view]:checked").input_value() == "hierarchy"
    assert other.text("#found") == page.text("#found")
    last = open_page(report, "#task=" + str((SUM, 1)))
    last.tab.click("#copy-link")
    last.until(lambda: last.text("#copy-link") == "Copied")
    hash_ = last.tab.evaluate("location.hash")
    assert parse_qs(hash_[1:])["task"] == [str((SUM, 1))]
    again = open_page(report, hash_)
    assert again.details()["Key"] == last.details()["Key"]


def test_tables_tell_once_what_is_the_same_and_show_first_what_explains(
    open_page: Any, report: Path
) -> None:
    page = open_page(report)
    heads = page.texts("#functions-table .head button")
    assert "Host" not in heads
    assert "Host is node in every row." in page.text("#functions-table .absent")
    assert heads[:5] == ["Function", "Durations", "Worker", "Duration (s)", "Failed Tasks"]
