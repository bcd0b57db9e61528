"""The run that a command works on: its files, its name, and the names of what is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.errors import NoSchedulerError
from dasfprof.report.terminal.output import echo
from dasfprof.text import clean

if TYPE_CHECKING:
    from distributed import Client

    from dasfprof.analysis import TraceAnalyser
    from dasfprof.database import MultiEventDatabase


#: The option of commands that read a run, for a part of it.
between_option = click.option(
    "--between",
    nargs=2,
    metavar="BEGIN END",
    help="Read only what overlaps the time between two times, in UTC unless they name a zone, such "
    "as '2026-03-01 12:00' '2026-03-01 13:00'.",
)


def open_source(source: str, between: tuple[str, str] | None = None) -> MultiEventDatabase:
    """Open the files of a run; Python warnings are printed as notes."""
    from dasfprof.database import open_run

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = open_run(source, between=between)
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)
    return database


def open_analyser(
    source: str, between: tuple[str, str] | None = None, *, client: Client | None = None
) -> tuple[TraceAnalyser, str]:
    """Open a run for analysis; returns the analyser and the run's name, or that of the source.

    With a client its cluster analyses the run.
    """
    # A wrong source is an error before pandas is loaded.
    database = open_source(source, between) if client is None else source
    from dasfprof import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(database, client=client)
    return analyser, title_of(analyser.in_memory, default=Path(source).resolve().name)


@contextmanager
def connected(address: str | None) -> Iterator[Client | None]:
    """Connect to the scheduler at an address; no address, no client.

    Raises
    ------
    NoSchedulerError
        If none answers there.
    """
    if address is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise NoSchedulerError(
            f"no Dask scheduler answers at {address!r}: {error}. Give its address, such as "
            "tcp://10.0.0.5:8786; client.scheduler_info() tells it."
        ) from error
    with client:
        yield client
