"""Takes the README's picture: runs the demo, writes its report, and opens that in a browser.

    pip install ".[demo]" playwright
    python notebooks/make_picture.py [FILE]

It needs Chromium: that of the system, or the one that `playwright install chromium` brings.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from dasfprof import TraceAnalyser
from dasfprof.cli.main import cli

PICTURE = Path(__file__).with_name("report.png")
#: CSS pixels, the size of a laptop's window.
WIDTH, HEIGHT = 1280, 1000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> None:
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    parser.add_argument("--size", default="small", help="of the demo: small, medium or large")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        cli(["demo", "--directory", work, "--size", arguments.size], standalone_mode=False)
        report = TraceAnalyser(work).report(Path(work, "report.html"), title="dasfprof demo")
        take(report, arguments.file)
    print(f"{arguments.file}: {arguments.file.stat().st_size / 1e3:.0f} kB")


def take(report: Path, picture: Path) -> None:
    """Take a picture of a report as it opens."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        window = {"width": WIDTH, "height": HEIGHT}
        page: Page = browser.new_page(viewport=window, color_scheme="light")
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready=whole]")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
