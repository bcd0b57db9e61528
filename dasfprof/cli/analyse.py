"""``dasfprof analyse``: the tables of a recorded run."""

from __future__ import annotations

from pathlib import Path

import click

from dasfprof.cli.tables import (
    DEFAULT_ROWS,
    TABLES,
    open_source,
    print_notes,
    print_table,
    say,
)
from dasfprof.report.text import clean


@click.command()
@click.argument("source")
@click.option(
    "-a",
    "--analysis",
    "analyses",
    type=click.Choice(list(TABLES)),
    multiple=True,
    help="Which table; may be given several times. Default: all three.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the whole tables as CSV files into this directory too.",
)
@click.option(
    "--head",
    type=click.IntRange(min=1),
    default=DEFAULT_ROWS,
    show_default=True,
    help="How many rows to print of each table.",
)
def analyse(source: str, analyses: tuple[str, ...], output: Path | None, head: int) -> None:
    """Print where the time of a run went.

    SOURCE is a trace file, a directory that holds one run, a quoted glob, or the begin of a run's
    name with or without a directory before it.

    \b
    Examples:
      dasfprof analyse traces/
      dasfprof analyse -a function --head 20 traces/Tutorial_5
      dasfprof analyse -o tables/ 'traces/Tutorial_5*'
    """
    database = open_source(source)  # a wrong source is told before pandas is loaded
    from dasfprof import TraceAnalyser

    analyser = TraceAnalyser(database)
    written = []
    for name in dict.fromkeys(analyses or TABLES):
        table = TABLES[name]
        frame = table.ask(analyser)
        print_table(table, frame, head)
        if output is not None:
            from dasfprof.report.csv import write_csv

            output.mkdir(parents=True, exist_ok=True)
            written.append(write_csv(frame, output / table.file_name))
    print_notes(analyser.trace.notes)
    if written:
        names = ", ".join(path.name for path in written)
        say(f"Wrote {names} into {clean(output)}.", apart=True)
