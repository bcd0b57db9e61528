"""The page of a comparison: how large, how soon written, how soon all of it is seen.

Two runs of as many tasks of random lengths on 32 threads, those of `bench_report`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_report import write_trace
from measure import Result, spread

import dasfprof


def seconds_to_open(browser: Any, page: Path) -> float:
    """Open the page, and return after how many seconds both timelines were drawn."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    begin = time.perf_counter()
    tab.goto(page.as_uri(), wait_until="commit")
    tab.wait_for_selector("html[data-ready=whole]", timeout=120_000)
    took = time.perf_counter() - begin
    tab.close()
    return took


def main(arguments: list[str] | None = None) -> list[Result]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, action="append", help="of each run")
    options = parser.parse_args(arguments)
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("needs a Chromium browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    columns = ["tasks a run", "file, MB", "compared and written, s", "CPU, s", "opened, s"]
    result = Result("page of a comparison", columns)
    for count in options.tasks or [10_000, 100_000]:
        written, worked, opened = [], [], []
        with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
            sides = [Path(place, side) for side in ("before", "after")]
            for seed, side in enumerate(sides, 1):
                side.mkdir()
                write_trace(side, count, seed=seed)
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
            )
            for _ in range(options.rounds):
                begin, cpu = time.perf_counter(), time.process_time()
                page = dasfprof.compare(*sides).report(Path(place, "page.html"))
                written.append(time.perf_counter() - begin)
                worked.append(time.process_time() - cpu)
                opened.append(seconds_to_open(browser, page))
            browser.close()
            size = page.stat().st_size
        middles = [f"{spread(figures)[0]:.2f}" for figures in (written, worked, opened)]
        result.rows.append([f"{count:,}", f"{size / 1e6:.2f}", *middles])
        result.figures[str(count)] = {
            "size": size,
            "written": written,
            "worked": worked,
            "opened": opened,
        }
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
