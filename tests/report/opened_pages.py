"""Reports in a real browser, and the small trace that they show."""

import base64
import csv
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pandas as pd
import pytest
from traces import write_trace

from dasfprof import CompleteEvent, InstantEvent, TraceAnalyser

DEADLINE = 120.0
BEGIN = 1_790_000_000.0
#: Left edge of the tracks in the timeline's canvas, in CSS pixels.
GUTTER, RULER = 184, 24

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> str:
    """Return the path of Chromium, or skip the test with a hint how to install it."""
    pytest.importorskip("playwright", reason="needs Playwright: pip install 'dasfprof[test]'")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("needs a Chromium browser: apt-get install chromium")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
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
    """Report in a browser, with a list of its errors.

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
        state = "document.documentElement.dataset.ready"
        self.until(lambda: self.tab.evaluate(state) == "whole")

    def until(self, condition: Any) -> Any:
        """Wait until the condition is true, and return its value."""
        end = monotonic() + DEADLINE
        while not (value := condition()):
            assert monotonic() < end, f"waited too long; the page says {self.complaints}"
            sleep(0.01)
        return value

    def text(self, selector: str) -> str:
        return str(self.tab.locator(selector).text_content())

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.tab.locator(selector).all_text_contents()]

    def details(self) -> dict[str, str]:
        names, values = self.texts("#details dt"), self.texts("#details dd")
        return dict(zip(names, values, strict=True))

    def search(self, query: str, told: str) -> None:
        """Search, and wait until the page reports this result."""
        self.tab.fill("#search", query)
        self.until(lambda: self.text("#found") == told)

    def follow(self, key: str) -> dict[str, str]:
        """Go to the next found task run, which must have this key, and return its details."""
        self.tab.press("#search", "Enter")
        self.until(lambda: self.details().get("Key") == key)
        return self.details()

    def chosen_row(self) -> list[str]:
        return self.texts("#task-table [aria-selected=true] > div")

    def download(self, button: str) -> list[dict[str, str]]:
        with self.tab.expect_download() as waited:
            self.tab.click(button)
        text = Path(waited.value.path()).read_text(encoding="utf-8")
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # the limit is global
        return list(csv.DictReader(io.StringIO(text)))

    def canvas(self) -> dict[str, float]:
        box: dict[str, float] = self.tab.locator("#timeline .overlay").bounding_box()
        return box

    def at(self, share: float, y: float) -> tuple[float, float]:
        """Return the point in the window at a fraction of the shown time, and a height."""
        box = self.canvas()
        return box["x"] + GUTTER + share * (box["width"] - GUTTER), box["y"] + y

    def pixels(self, canvas: str, x: float, y: float, *size: int) -> np.ndarray:
        """Return red, green, blue and opacity of a canvas's pixels, by row and column.

        They start at a point, and span a size or extend to the end of the canvas.
        """
        size, text = self.tab.evaluate(
            """async ([name, x, y, ...size]) => {
                for (let frames = 0; frames < 2; frames += 1)
                  await new Promise((resolve) => requestAnimationFrame(resolve));
                const canvas = document.querySelector(name);
                if (size.length === 0) size = [canvas.width - x, canvas.height - y];
                const context = new OffscreenCanvas(...size).getContext("2d");
                context.drawImage(canvas, -x, -y);
                const bytes = context.getImageData(0, 0, ...size).data;
                let text = "";
                for (let at = 0; at < bytes.length; at += 4096)
                  text += String.fromCharCode(...bytes.subarray(at, at + 4096));
                return [size, btoa(text)];
            }""",
            [canvas, round(x), round(y), *size],
        )
        return np.frombuffer(base64.b64decode(text), np.uint8).reshape(size[1], size[0], 4)

    def painted(self, canvas: str = "picture") -> int:
        """Count the pixels right of the titles and below the ruler that are not background."""
        pixels = self.pixels(f"#timeline canvas.{canvas}", GUTTER, RULER)
        white = (pixels[..., :3] == 255).all(axis=-1)
        return int(((pixels[..., 3] > 0) & ~white).sum())

    def colours(self, canvas: str, x: float, y: float, wide: int = 1, high: int = 1) -> list[str]:
        """Return the colours of a canvas's pixels in the form of styles, or "clear"."""
        pixels = self.pixels(canvas, x, y, wide, high).reshape(-1, 4).tolist()
        return [f"rgb({r}, {g}, {b})" if opacity else "clear" for r, g, b, opacity in pixels]

    def window(self) -> tuple[float, float]:
        """Return the seconds between which the timeline shows the run."""
        text = self.text("#window").split(",")[0]
        begin, end = (part.removesuffix(" s") for part in text.split(" to "))
        return float(begin), float(end)


Opener = Callable[..., OpenedPage]


def assert_exported(
    page: OpenedPage, name: str, frame: pd.DataFrame, *, in_order: bool = True
) -> None:
    """Assert that a table's CSV file has all rows and columns of a frame, in order."""
    exported = page.download(f"#{name}-csv")
    assert set(exported[0]) == set(frame.columns)
    assert not in_order or list(exported[0]) == list(frame.columns)
    for row, expected in zip(exported, frame.to_dict("records"), strict=True):
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
    """Return a "Compute" event as the worker's plugin records it; times are relative to `BEGIN`."""
    about: dict[str, Any] = {
        **{"key": key, "run_id": 0, "state": "memory", "size": 2_000_000, "input_size": 0},
        **{"type": "numpy.ndarray", "dtype": "float64", "shape": (500, 500), "dependencies": []},
        "thread": None if thread is None else 7000 + thread,
        "cpu": duration / 2,
        **{"received": BEGIN + start - 0.03, "ready": BEGIN + start - 0.02},
        **{"executing": BEGIN + start, "done": BEGIN + start + duration + 0.01},
        **args,
    }
    return CompleteEvent("Compute", BEGIN + start, duration, **of_worker(worker, about))


def of_worker(worker: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"process_id": "node", "thread_id": f"worker-node-{worker}", "args": args}


def sampled(time: float, worker: int, cpu: float) -> InstantEvent:
    args = {"cpu": cpu, "memory": 10_000_000, "num_fds": 9, "time": BEGIN + time}
    return InstantEvent("Resource Usage", BEGIN + time, **of_worker(worker, args))


def held(time: float, worker: int, tasks: int) -> InstantEvent:
    args = {"tasks": tasks, "size": tasks * 1000, "state": "running"}
    return InstantEvent("Managed Memory", BEGIN + time, **of_worker(worker, args))


LOAD, SUM = "load-" + "a" * 32, "sum-" + "b" * 32

#: Ten seconds of two workers: three loads, two sums of two of them, and a failure.
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


def small_run(directory: Path, *more: Any, **header: Any) -> TraceAnalyser:
    """Write `EVENTS`, and `more` events, as a trace, and open it."""
    path = directory / "mine-TracePlugin-node-0.msgpack"
    return TraceAnalyser(write_trace(path, *EVENTS, *more, **header), progress=False)
