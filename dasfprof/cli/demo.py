"""``dasfprof demo``: a pipeline on a cluster of this host, recorded and analysed."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.report.terminal.answers import DEFAULT_ROWS, print_answers
from dasfprof.report.terminal.console import echo, heading, say
from dasfprof.text import count_of, format_size

if TYPE_CHECKING:
    from distributed import Client

    from dasfprof.cli.demo_pipeline import DemoSize

#: Number of clusters of points, and of worker processes.
_CLUSTERS, _WORKERS = 3, 2


@click.command()
@click.option(
    "--directory",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    default=Path("dasfprof-demo"),
    show_default=True,
    help="Directory for the input data and the trace files.",
)
@click.option(
    "--size",
    type=click.Choice(["small", "medium"]),
    default="medium",
    show_default=True,
    help="Number of points: 200 thousand or 2 million.",
)
def demo(directory: Path, size: str) -> None:
    """Record a small pipeline, and show where its time went.

    The demo starts a Dask cluster, reads points from files, normalises them, clusters them with
    k-means, and shuffles them. It takes about ten seconds on two cores.

    \b
    Examples:
      dasfprof demo
      dasfprof demo --size small --directory /tmp/demo
    """
    from dasfprof.cli.demo_pipeline import SIZES, write_points

    chosen = SIZES[size]
    points = chosen.files * chosen.points_per_file
    heading(f"k-means on {points:,} points, {_WORKERS} workers", "\n")
    with _step("write", f"{chosen.files} files of points in {directory / 'data'}"):
        paths = write_points(directory / "data", chosen)
    from distributed import Client, LocalCluster

    import dasfprof

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's advice is for authors of pipelines.
        with _step("start", f"a Dask cluster of {_WORKERS} worker processes"):
            cluster = LocalCluster(
                n_workers=_WORKERS,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.ERROR,
            )
        with (
            cluster,
            Client(cluster) as client,
            dasfprof.profile(client, "demo", directory=directory) as run,
        ):
            _work(client, paths, chosen)
    files = run.files()
    source = Path(directory, run.name)
    size_on_disk = format_size(sum(path.stat().st_size for path in files))
    echo(f"\nRecorded {source}: {count_of(len(files), 'trace file')}, {size_on_disk}")
    print_answers(run.analyser(), DEFAULT_ROWS, unlimited=False)
    say(
        "Next: `dasfprof run SCRIPT.py` does the same for your pipeline. `dasfprof report "
        f"{source}` shows the run in the browser. `dasfprof export --to perfetto {source}` "
        f"writes it for Perfetto. `dasfprof info {source}` lists what was recorded.",
        apart=True,
    )


def _work(client: Client, paths: list[Path], size: DemoSize) -> None:
    """Run the pipeline step by step."""
    from distributed import wait

    from dasfprof import step
    from dasfprof.cli.demo_pipeline import k_means, normalise, read_points, summarise

    with (
        step("normalise"),
        _step("normalise", "read in chunks, normalised, and kept in memory"),
    ):
        points = normalise(read_points(paths, size))
        points = client.persist(points)
        wait(points)
    with step("k-means"), _step("k-means", "Lloyd's iterations") as results:
        moves = list(k_means(points, _CLUSTERS))
        results.append(f"{len(moves)} until the centres stop moving")
    centres, _ = moves[-1]
    with step("shuffle"), _step("shuffle", "one partition per cluster") as results:
        try:
            import dask.dataframe  # noqa: F401
        except ImportError as error:
            results.append(f"skipped ({error}); pip install 'dasfprof[demo]'")
        else:
            summary = summarise(points, centres)
            counts = ", ".join(f"{count:,}" for count in summary["x"]["count"])
            results.append(f"{counts} points")


@contextmanager
def _step(name: str, text: str) -> Iterator[list[str]]:
    """Time a step. At its end, print its name, its seconds, and the texts in the yielded list."""
    results: list[str] = []
    begin = time.perf_counter()
    yield results
    seconds = time.perf_counter() - begin
    echo(f"  {name:<10} {seconds:5.1f} s  {': '.join([text, *results])}")
