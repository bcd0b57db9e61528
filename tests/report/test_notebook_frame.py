"""A report in a notebook's output: a frame as tall as its page."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import wait_until
from opened_pages import DEADLINE, browser_path
from traces import record, usage

from dasfprof import TraceAnalyser, write_report
from dasfprof.report.notebook import frame_html

IMAGE = "x<img src=x onerror=alert(1)>"
#: Height of a frame's borders, top and bottom.
BORDERS = 2


@pytest.fixture
def text(report: Path) -> str:
    return report.read_text("utf-8")


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens notebooks with outputs, without errors or other requests."""
    complaints: list[str] = []
    page = tmp_path / "notebook.html"

    def open_one(*outputs: str, browser: Any = browser, head: str = "", **options: Any) -> Any:
        parts = "".join(f"<div>{output}</div>" for output in outputs)
        page.write_text(f"<!doctype html><meta charset=utf-8>{head}{parts}", encoding="utf-8")
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **options})
        tab.set_default_timeout(DEADLINE * 1000)
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(dialog.message))
        tab.on("request", lambda request: complaints.append(request.url))
        tab.goto(page.as_uri())
        return tab

    yield open_one
    for context in browser.contexts:
        context.close()
    here = ("file:", "blob:", "data:", "about:")
    assert [each for each in complaints if not each.startswith(here)] == []


def whole(tab: Any, number: int) -> Any:
    """Wait until a visible frame is as tall as its page, and return the page in it."""
    element = tab.locator("iframe").nth(number)
    element.scroll_into_view_if_needed()
    inner = element.element_handle().content_frame()
    inner.wait_for_selector("html[data-ready=whole]", state="attached", timeout=DEADLINE * 1000)
    wait_for(inner, "innerHeight > 400")
    tab.wait_for_function(
        "([frame, least]) => frame.offsetHeight > least", arg=[element.element_handle(), 400]
    )
    return inner


def wait_for(inner: Any, text: str) -> None:
    """Wait until an expression is true in a report, whose policy forbids `eval`."""
    wait_until(lambda: inner.evaluate(text), DEADLINE)


def heights(tab: Any, number: int) -> tuple[int, int]:
    """Return the height of the page in a frame, and the frame's inner height."""
    element = tab.locator("iframe").nth(number)
    inner = element.element_handle().content_frame()
    shown = inner.evaluate("Math.ceil(document.documentElement.getBoundingClientRect().height)")
    return shown, element.bounding_box()["height"] - BORDERS


def test_a_frame_is_as_tall_as_its_page(text: str, opened: Opened) -> None:
    tab = opened(frame_html(text, "run"))
    inner = whole(tab, 0)
    wait = "([frame, inner]) => frame.offsetHeight - 2 === inner"
    frame = tab.locator("iframe").element_handle()
    folded, _ = heights(tab, 0)
    tab.wait_for_function(wait, arg=[frame, folded])

    inner.click("#findings details >> nth=0")
    unfolded, _ = heights(tab, 0)
    assert unfolded > folded
    tab.wait_for_function(wait, arg=[frame, unfolded])
    inner.click("#findings details >> nth=0")
    tab.wait_for_function(wait, arg=[frame, folded])


def test_other_frames_do_not_change_a_height(text: str, opened: Opened) -> None:
    stranger = """<iframe sandbox="allow-scripts" srcdoc="<script>
        parent.postMessage({ dasfprofHeight: 77 }, '*'); parent.postMessage('told', '*')
        </script>"></iframe>"""
    heard = (
        "<script>addEventListener('message', (e) => (window.told ||= e.data === 'told'))</script>"
    )
    tab = opened(frame_html(text, "run"), heard + stranger)
    whole(tab, 0)
    tab.wait_for_function("window.told")
    shown, room = heights(tab, 0)
    assert room == shown > 77


def test_a_scrollbar_hides_nothing_of_a_narrow_frame(
    text: str, browser: Any, opened: Opened
) -> None:
    """The page is wider than this frame, and scrollbars occupy space, as on most desktops."""
    desktop = browser.browser_type.launch(
        executable_path=browser_path(),
        args=["--no-sandbox", "--disable-gpu"],
        ignore_default_args=["--hide-scrollbars"],
        timeout=DEADLINE * 1000,
    )
    narrow = f'<div style="width:300px">{frame_html(text, "run")}</div>'
    tab = opened(narrow, browser=desktop)
    inner = whole(tab, 0)
    root = "document.documentElement"
    wait_for(inner, f"innerHeight > {root}.clientHeight")
    wait_for(inner, f"{root}.scrollHeight <= {root}.clientHeight")
    wait_for(inner, f"{root}.clientWidth === innerWidth")
    desktop.close()


def test_only_a_number_is_a_height(opened: Opened) -> None:
    """Messages of a sender arrive in order, so the last one shows that others were received."""
    page = """<script>addEventListener("message", () => {
        for (const height of [Infinity, 0, "77", 456])
            parent.postMessage({ dasfprofHeight: height }, "*");
    }, { once: true })</script>"""
    # The frame gets the message when it can receive it, which may be before or after it is ready.
    heard = """<script>
        window.heights = [];
        const frame = document.querySelector("iframe");
        addEventListener("message", () => heights.push(frame.style.height));
        const begin = () => frame.contentWindow.postMessage("begin", "*");
        frame.addEventListener("load", begin);
        begin();
    </script>"""
    tab = opened(frame_html(page, "run") + heard)
    tab.wait_for_function("heights.length === 4")
    assert tab.evaluate("heights") == [*["1000px"] * 3, "456px"]


def test_the_frame_is_a_whole_report_in_any_page(
    analyser: TraceAnalyser, opened: Opened, tmp_path: Path
) -> None:
    """A page without scripts besides the frame simulates an untrusted notebook."""
    report = write_report(analyser, tmp_path / "report.html", title=IMAGE)
    frame = re.sub(r"(?s)<script>.*", "", frame_html(report.read_text(encoding="utf-8"), IMAGE))
    inner = opened(frame).frames[1]
    inner.wait_for_selector("html[data-ready=whole]", timeout=DEADLINE * 1000)
    assert inner.text_content("h1") == IMAGE
    assert inner.evaluate("self.origin") == "null", "it reaches nothing of the notebook"
    inner.fill("#search", "fails")
    inner.wait_for_selector("#found:has-text('1')", timeout=DEADLINE * 1000)
    inner.click("#findings a >> nth=0")
    inner.click("#show-all")
    assert inner.url.startswith("about:srcdoc#")
    assert inner.text_content("h1") == IMAGE, "its links lead to its own places"


def test_the_frame_of_an_empty_run_is_as_low_as_what_it_shows(
    opened: Opened, tmp_path: Path
) -> None:
    analyser = TraceAnalyser(record(tmp_path / "run", [usage(1.7e9)]), progress=False)
    report = write_report(analyser, tmp_path / "report.html").read_text(encoding="utf-8")
    inner = opened(frame_html(report, "run", empty=True)).frames[1]
    inner.wait_for_selector("html[data-ready=whole]", timeout=DEADLINE * 1000)
    shown, room = inner.evaluate("[document.body.offsetHeight, innerHeight]")
    assert abs(shown - room) < 80, "fonts differ"
    assert room < 600
    assert inner.locator("#findings li").count() == 0


@pytest.mark.parametrize(("light", "dark"), [("false", True), ("true", False)])
def test_a_report_has_the_notebooks_theme(
    text: str, opened: Opened, light: str, dark: bool
) -> None:
    """JupyterLab stores its theme on the notebook's page; the system's theme is light here."""
    # Frames would ignore an emulated colour scheme.
    body = f"<body data-jp-theme-light={light}>"
    inner = whole(opened(frame_html(text, "run"), head=body, color_scheme="null"), 0)
    assert inner.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == dark
