"""The run that a command reads, and its findings and tables as one JSON document."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.errors import InvalidArgumentError, NoSchedulerError
from dasfprof.report.documents import finding_page, finding_url, json_of, records, schema_of
from dasfprof.report.terminal.console import echo
from dasfprof.text import clean

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

    from dasfprof.analysis.diagnosis.registry import Finding
    from dasfprof.database import MultiEventDatabase
    from dasfprof.handles.analyser import TraceAnalyser


#: Option for a time range, for commands that read a run.
between_option = click.option(
    "--between",
    nargs=2,
    metavar="BEGIN END",
    help="Analyse only the events between two times, such as '2026-03-01 12:00' "
    "'2026-03-01 13:00'. Times without a time zone are UTC.",
)

#: Option for the name of a client, for commands that read a run.
client_option = click.option(
    "--client",
    "name",
    metavar="NAME",
    help="Analyse only the tasks of the client with this name, such as ann if it was created by "
    "Client(name='ann'). Other clients' tasks appear only as busy thread time, without names.",
)


def _set_price(ctx: click.Context, _: click.Parameter, price: str | None) -> None:
    """Set ``dasfprof.price`` while the command runs."""
    if price is None:
        return
    import dask.config

    from dasfprof.config.options import setting

    try:
        setting("price", price)
    except InvalidArgumentError as error:
        raise click.BadParameter(clean(error)) from error
    ctx.with_resource(dask.config.set({"dasfprof.price": price}))


def head_option(rows: int) -> Callable[[Any], Any]:
    """Return an option for the number of rows of each table, whose default is `rows`."""
    return click.option(
        "--head",
        type=click.IntRange(min=1),
        default=rows,
        show_default=True,
        help="Number of rows of each table.",
    )


#: Option for a price, for commands that show costs.
price_option = click.option(
    "--price",
    callback=_set_price,
    expose_value=False,
    help="Price of a worker per hour, such as 0.12 or '0.12 EUR', or of a thread, such as "
    "'0.03 EUR/thread'. The default is the setting dasfprof.price. Without a price, "
    "no cost is shown.",
)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print the Python warnings of a ``with`` block as notes, after the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        echo(f"Note: {clean(warning.message)}", err=True)


def open_source(source: str, between: tuple[str, str] | None = None) -> MultiEventDatabase:
    """Open the files of a run, and print Python warnings as notes."""
    from dasfprof.database import open_run

    with warnings_as_notes():
        return open_run(source, between=between)


def open_analyser(
    source: str, between: tuple[str, str] | None = None, *, client: Client | str | None = None
) -> tuple[TraceAnalyser, str]:
    """Open a run for analysis. Return the analyser, and the name of the run or source.

    If `client` is a Dask client, the analysis runs on its cluster. If it is the name of a client,
    only the tasks of that client are analysed.
    """
    # Check the source first, because loading pandas takes time.
    known = client is None or isinstance(client, str)
    database = open_source(source, between) if known else source
    from dasfprof.handles.analyser import TraceAnalyser
    from dasfprof.report.run_summary import title_of

    analyser = TraceAnalyser(database, client=client)
    return analyser, title_of(analyser.in_memory, default=Path(source).resolve().name)


@contextmanager
def connected(address: str | None) -> Iterator[Client | None]:
    """Connect to the scheduler at an address, and yield the client, or None without an address.

    Raises
    ------
    NoSchedulerError
        If no scheduler answers at this address.
    """
    if address is None:
        yield None
        return
    from distributed import Client

    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise NoSchedulerError(
            f"No Dask scheduler answers at {address!r}: {error}. Pass its address, such as "
            "tcp://10.0.0.5:8786, which client.scheduler_info() shows."
        ) from error
    with client:
        yield client


#: Maximum number of rows that are converted to text at a time.
_BLOCK = 1 << 12


def print_document(
    analyser: TraceAnalyser,
    title: str,
    findings: list[Finding] | None,
    tables: Iterable[tuple[str, pd.DataFrame]],
    following: list[str],
) -> None:
    """Print a JSON document with findings and tables, in ASCII and piece by piece.

    The help of ``dasfprof analyse`` lists its entries. NA and numbers that are not finite are null,
    and times are ISO 8601. The summary is null for a run that is analysed in time windows. A
    finding also has ``Figures``, ``Changes`` and ``Page``.

    Parameters
    ----------
    findings
        The findings, or None for a document without findings.
    tables
        The tables, with the names of their CSV files.
    following
        Commands for the next step.
    """
    from dasfprof.report.run_summary import summarise

    summary = None if analyser.is_in_parts else summarise(analyser.run)
    head = json_of({"schema": schema_of("analyse"), "run": title, "summary": summary})
    click.echo(head.removesuffix("}") + ",")
    if findings is not None:
        listed = [
            {**finding.to_dict(), "Page": finding_url(finding.rule) or finding_page(finding.rule)}
            for finding in findings
        ]
        click.echo(f'"findings": {json_of(listed)},')
    click.echo('"tables": {', nl=False)
    for number, (name, table) in enumerate(tables):
        click.echo(f"{',' * bool(number)}\n{json_of(name)}: [", nl=False)
        for begin in range(0, len(table), _BLOCK):
            block = table.iloc[begin : begin + _BLOCK]
            lines = ",\n".join(map(json_of, records(block)))
            click.echo(f"{',' * bool(begin)}\n{lines}", nl=False)
        click.echo("]", nl=False)
    notes = json_of([note.text for note in analyser.in_memory.notes])
    click.echo(f'}},\n"notes": {notes},\n"next": {json_of(following)}}}')
