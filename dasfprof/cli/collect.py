"""``dasfprof collect``: copies the files of all runs that are being recorded on a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from dasfprof.cli.sources import connected
from dasfprof.cli.stuck import scheduler_address
from dasfprof.report.terminal.console import echo, say
from dasfprof.text import clean, count_of, format_size


@click.command()
@click.argument("address", required=False)
@click.option(
    "-d",
    "--directory",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    default=".",
    show_default="the working directory",
    help="Directory for the copies.",
)
def collect(address: str | None, directory: Path) -> None:
    """Copy the files of all runs that are being recorded on a cluster.

    All processes first write what they have recorded. Files are copied from the disks of the
    scheduler and of all workers, including workers that were restarted. Files that are already in
    the directory (-d) are not copied again. The recording continues.

    ADDRESS is the address of the scheduler, such as tcp://host:8786, or a scheduler file. The
    default is scheduler-address in Dask's configuration.

    \b
    Examples:
      dasfprof collect tcp://10.0.0.7:8786 -d traces
      dasfprof collect scheduler.json
    """
    from dasfprof.handles.run import recorded_runs

    with connected(scheduler_address(address)) as client:
        assert client is not None
        runs = recorded_runs(client)
        for run in runs:
            files = run.collect(directory)
            size = format_size(sum(path.stat().st_size for path in files))
            echo(f"{clean(run.name)}: {count_of(len(files), 'file')}, {size} in {clean(directory)}")
    if not runs:
        say("dasfprof records nothing on this cluster.", err=True)
