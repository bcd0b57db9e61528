"""Size of the HTML page of a comparison, and the time to write and to open it.

The two runs are those of `bench_report`: tasks of random durations on 32 threads.
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
    """Open the page, and return the seconds until both timelines are drawn."""
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
    parser.add_argument("--tasks", type=int, action="append", help="tasks per run")
    options = parser.parse_args(arguments)
    browser_path = shutil.which("chromium")
    if browser_path is None:
        raise SystemExit("chromium not found: install it with apt-get install chromium")
    from playwright.sync_api import sync_playwright

    columns = ["tasks per run", "file, MB", "compare and write, s", "CPU, s", "open, s"]
    result = Result("Page of a comparison", columns)
    for count in options.tasks or [10_000, 100_000]:
        written, cpu_seconds, opened = [], [], []
        with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
            sides = [Path(directory, side) for side in ("before", "after")]
            for seed, side in enumerate(sides, 1):
                side.mkdir()
                write_trace(side, count, seed=seed)
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
            )
            for _ in range(options.rounds):
                begin, cpu = time.perf_counter(), time.process_time()
                page = dasfprof.compare(*sides).report(Path(directory, "page.html"))
                written.append(time.perf_counter() - begin)
                cpu_seconds.append(time.process_time() - cpu)
                opened.append(seconds_to_open(browser, page))
            browser.close()
            size = page.stat().st_size
        medians = [f"{spread(figures)[0]:.2f}" for figures in (written, cpu_seconds, opened)]
        result.rows.append([f"{count:,}", f"{size / 1e6:.2f}", *medians])
        result.figures[str(count)] = {
            "size": size,
            "written": written,
            "cpu": cpu_seconds,
            "opened": opened,
        }
    print(result.show(), flush=True)
    return [result]


if __name__ == "__main__":
    main()
