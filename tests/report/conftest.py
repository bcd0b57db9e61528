"""Browser, pages that must not report errors, and the run that most of them show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opened_pages import OpenedPage, Opener, chromium, small_run

from dasfprof import TraceAnalyser


# Module scope, because Playwright's event loop occupies this thread, and other tests need one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def analyser(tmp_path_factory: pytest.TempPathFactory) -> TraceAnalyser:
    """Return the small run. Modules may define another run."""
    return small_run(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def report(analyser: TraceAnalyser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of the module's fixture `analyser`."""
    return analyser.report(tmp_path_factory.mktemp("reports") / "run.html")


@pytest.fixture
def page(open_page: Opener, report: Path) -> OpenedPage:
    """Open the report of a module, with a track per thread."""
    return open_page(report, "#view=flatten")


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opener]:
    """Open pages, and assert at the end that there were no errors or requests."""
    pages: list[OpenedPage] = []

    def open_one(*args: Any, **options: Any) -> OpenedPage:
        pages.append(OpenedPage(browser, *args, **options))
        return pages[-1]

    yield open_one
    for page in pages:
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith(("file:", "blob:"))] == []
        page.tab.close()
