"""Takes the README's picture of `dasfprof watch`: records a pipeline and draws the view of it.

    python notebooks/make_watch_picture.py [FILE]

One of the pipeline's tasks waits for an event that nobody sets.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, Event, LocalCluster
from rich.console import Console

import dasfprof
from dasfprof.analysis.live import LiveRun
from dasfprof.report.terminal.live_view import live_view

#: Columns, and seconds of the run at which the picture is taken.
WIDTH, AT = 100, 16.0


def load_chunk(number: int) -> int:
    time.sleep(0.2)
    return number


def clean(number: int) -> int:
    time.sleep(0.15)
    return number


def fit(number: int) -> int:
    if number == 7:
        Event("parameters").wait()
    time.sleep(0.25)
    return number


for function in (load_chunk, clean, fit):  # the picture shows a user's file
    function.__code__ = function.__code__.replace(co_filename="pipeline.py")


def record(directory: Path) -> str:
    """Run the pipeline for some seconds and return its picture."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=4, dashboard_address=None, memory_limit="2GiB"
        ) as cluster,
        Client(cluster) as client,
        dasfprof.profile(client, name="train", directory=directory),
    ):
        cleaned = client.map(clean, client.map(load_chunk, range(200)))
        fitted = client.map(fit, cleaned, key="fit")
        time.sleep(AT)
        state = LiveRun(directory).read()
        found = dasfprof.TraceAnalyser(directory, progress=False).diagnose().head(2)
        Event("parameters").set()
        client.gather(fitted)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False, markup=False)
    console.print(live_view(state, width=WIDTH, findings=found.to_dict("records")))
    return console.export_svg(title="dasfprof watch traces")


def main() -> None:
    default = Path(__file__).with_name("watch.svg")
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    with tempfile.TemporaryDirectory() as directory:
        text = record(Path(directory))
    picture.write_text(text, encoding="utf-8")
    print(f"{picture}: {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
