"""Reports opened in a real browser, and the small trace that they are about."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pandas as pd
import pytest

from dasfprof import CompleteEvent, InstantEvent

DEADLINE = 120.0
BEGIN = 1_790_000_000.0
#: Where the tracks begin in the timeline's canvas, in CSS pixels.
GUTTER, RULER = 184, 24

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> str:
    """Find a Chromium, or skip the test and say how to get one."""
    pytest.importorskip("playwright", reason="needs Playwright: pip install 'dasfprof[test]'")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("needs a Chromium browser: apt-get install chromium")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a headless browser."""
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
        browser = playwright.chromium.launch(
            executable_path=path, args=arguments, timeout=DEADLINE * 1000
        )
        yield browser
        browser.close()


class OpenedPage:
    """A report in a browser; what goes wrong in it is collected.

    The page's policy forbids `eval`, so conditions are polled from here.
    """

    def __init__(self, browser: Any, path: Path, fragment: str = "", **options: Any) -> None:
        options.setdefault("viewport", {"width": 1280, "height": 1000})
        self.tab = browser.new_page(accept_downloads=True, **options)
        self.tab.set_default_timeout(DEADLINE * 1000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri() + fragment)
        self.until(lambda: self.tab.evaluate("document.documentElement.dataset.ready") == "whole")

    def until(self, condition: Any) -> Any:
        """Give the condition's value as soon as it is true."""
        end = monotonic() + DEADLINE
        while not (value := condition()):
            assert monotonic() < end, f"waited too long; the page says {self.complaints}"
            sleep(0.01)
        return value

    def text(self, selector: str) -> str:
        """Give the text of an element."""
        return str(self.tab.locator(selector).text_content())

    def texts(self, selector: str) -> list[str]:
        """Give the texts of elements."""
        return [str(text) for text in self.tab.locator(selector).all_text_contents()]

    def details(self) -> dict[str, str]:
        """Give what the pane tells of the selected task."""
        names, values = self.texts("#details dt"), self.texts("#details dd")
        return dict(zip(names, values, strict=True))

    def search(self, query: str, told: str) -> None:
        """Search, and wait until the page tells so of what it found."""
        self.tab.fill("#search", query)
        self.until(lambda: self.text("#found") == told)

    def follow(self, key: str) -> dict[str, str]:
        """Go on to the next task run that was found, of this key; give its details."""
        self.tab.press("#search", "Enter")
        self.until(lambda: self.details().get("Key") == key)
        return self.details()

    def chosen_row(self) -> list[str]:
        """Give the cells of the row that is marked in the table of task runs."""
        return self.texts("#task-table [aria-selected=true] > div")

    def download(self, button: str) -> list[dict[str, str]]:
        """Export a table and read the file."""
        with self.tab.expect_download() as waited:
            self.tab.click(button)
        text = Path(waited.value.path()).read_text(encoding="utf-8")
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # that of the process
        return list(csv.DictReader(io.StringIO(text)))

    def canvas(self) -> dict[str, float]:
        """Give the place of the timeline in the window."""
        box: dict[str, float] = self.tab.locator("#timeline .overlay").bounding_box()
        return box

    def at(self, share: float, y: float) -> tuple[float, float]:
        """Give the window's point at a share of the time that is shown, and a height."""
        box = self.canvas()
        return box["x"] + GUTTER + share * (box["width"] - GUTTER), box["y"] + y

    def painted(self, canvas: str = "picture") -> int:
        """Count the pixels right of the titles and under the ruler that are not background."""
        found: int = self.tab.evaluate(
            """([name, left, top]) => new Promise((resolve) => requestAnimationFrame(() => {
                const canvas = document.querySelector(`#timeline canvas.${name}`);
                const [width, height] = [canvas.width - left, canvas.height - top];
                const copy = new OffscreenCanvas(width, height);
                const context = copy.getContext("2d", { willReadFrequently: true });
                context.drawImage(canvas, -left, -top);
                const pixels = context.getImageData(0, 0, width, height).data;
                let count = 0;
                for (let at = 0; at < pixels.length; at += 4) {
                  const sum = pixels[at] + pixels[at + 1] + pixels[at + 2];
                  if (pixels[at + 3] > 0 && sum !== 765) count += 1;
                }
                resolve(count);
            }))""",
            [canvas, GUTTER, RULER],
        )
        return found

    def colours(self, canvas: str, x: float, y: float, wide: int = 1, high: int = 1) -> list[str]:
        """Give the colours of a canvas's pixels as styles have them, or "clear"."""
        found: list[str] = self.tab.evaluate(
            """([name, x, y, wide, high]) => new Promise((resolve) => requestAnimationFrame(() => {
                const canvas = document.querySelector(name);
                const context = new OffscreenCanvas(wide, high).getContext("2d");
                context.drawImage(canvas, -x, -y);
                const pixels = context.getImageData(0, 0, wide, high).data;
                resolve(Array.from({ length: wide * high }, (_, at) => pixels[4 * at + 3]
                  ? `rgb(${pixels.slice(4 * at, 4 * at + 3).join(", ")})` : "clear"));
            }))""",
            [canvas, round(x), round(y), wide, high],
        )
        return found

    def window(self) -> tuple[float, float]:
        """Give the seconds between which the timeline shows the run."""
        text = self.text("#window").split(",")[0]
        begin, end = (part.removesuffix(" s") for part in text.split(" to "))
        return float(begin), float(end)

    def close(self) -> None:
        """Close the tab."""
        self.tab.close()


Opener = Callable[..., OpenedPage]


def assert_exported(page: OpenedPage, name: str, frame: pd.DataFrame) -> None:
    """Check that a table's CSV file has all of a frame."""
    exported = page.download(f"#{name}-csv")
    assert list(exported[0]) == list(frame.columns)
    for row, (_, expected) in zip(exported, frame.iterrows(), strict=True):
        for label, value in expected.items():
            if pd.isna(value):
                assert row[label] == ""
            elif isinstance(value, str):
                assert row[label] == value
            else:
                assert float(row[label]) == value


def compute(
    key: Any, start: float, duration: float, worker: int, thread: int | None = 0, **args: Any
) -> CompleteEvent:
    """Make a "Compute" event as the worker's plugin records it; times from `BEGIN`."""
    about: dict[str, Any] = {
        "key": key,
        "run_id": 0,
        "state": "memory",
        "size": 2_000_000,
        "input_size": 0,
        "type": "numpy.ndarray",
        "dtype": "float64",
        "shape": (500, 500),
        "dependencies": [],
        "thread": None if thread is None else 7000 + thread,
        "cpu": duration / 2,
        "received": BEGIN + start - 0.03,
        "ready": BEGIN + start - 0.02,
        "executing": BEGIN + start,
        "done": BEGIN + start + duration + 0.01,
        **args,
    }
    label = f"worker-node-{worker}"
    return CompleteEvent(
        "Compute", BEGIN + start, duration, process_id="node", thread_id=label, args=about
    )


def sampled(time: float, worker: int, cpu: float) -> InstantEvent:
    """Make a "Resource Usage" event; the time is from `BEGIN`."""
    args = {"cpu": cpu, "memory": 10_000_000, "num_fds": 9, "time": BEGIN + time}
    label = f"worker-node-{worker}"
    return InstantEvent(
        "Resource Usage", BEGIN + time, process_id="node", thread_id=label, args=args
    )


def held(time: float, worker: int, tasks: int) -> InstantEvent:
    """Make a "Managed Memory" event; the time is from `BEGIN`."""
    args = {"tasks": tasks, "size": tasks * 1000, "state": "running"}
    label = f"worker-node-{worker}"
    return InstantEvent(
        "Managed Memory", BEGIN + time, process_id="node", thread_id=label, args=args
    )


LOAD, SUM = "load-" + "a" * 32, "sum-" + "b" * 32

#: Two workers; three loads, two sums of two of them, a failure; ten seconds.
EVENTS = (
    held(0.0, 0, 0),
    sampled(0.1, 0, 50.0),
    compute((LOAD, 0), 1.0, 2.0, 0),
    compute((LOAD, 1), 1.0, 1.0, 1),
    compute((LOAD, 2), 3.5, 0.5, 1),
    compute((SUM, 0), 4.0, 1.0, 0, dependencies=[(LOAD, 0), (LOAD, 1)], size=8, input_size=4e6),
    compute((SUM, 1), 6.0, 0.25, 1, dependencies=[(LOAD, 1), (LOAD, 2)], size=8, input_size=4e6),
    compute("fails-1", 8.0, 0.5, 0, 1, state="erred", exception="ValueError: <b>no</b>", size=0),
    sampled(5.0, 0, 100.0),
    held(5.0, 1, 4),
    held(8.0, 0, 3),
    held(10.0, 0, 5),
    held(10.0, 1, 4),
)
