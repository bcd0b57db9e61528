"""``dasfprof analyse``: the findings and tables of a recorded run."""

from __future__ import annotations

from pathlib import Path

import click

from dasfprof.cli.sources import open_analyser
from dasfprof.report.terminal.answers import DEFAULT_ROWS, TABLES, print_answers, tables_of
from dasfprof.report.terminal.output import say
from dasfprof.report.terminal.summary import print_summary
from dasfprof.text import clean


@click.command()
@click.argument("source")
@click.option(
    "-a",
    "--analysis",
    "analyses",
    type=click.Choice(list(TABLES)),
    multiple=True,
    help="Print only this analysis; may be repeated. Default: all.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the whole tables into this directory, as CSV files.",
)
@click.option(
    "--head",
    type=click.IntRange(min=1),
    help=f"Number of rows of each table.  [default: {DEFAULT_ROWS}; with --json all]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def analyse(
    source: str, analyses: tuple[str, ...], output: Path | None, head: int | None, *, as_json: bool
) -> None:
    """Print what is wrong with a run and where its time went.

    SOURCE is a trace file, a directory that holds one run, a quoted glob pattern, or the prefix of
    a run's name, with or without its directory.

    The JSON document has "run", "summary", "findings", "tables" (by the names of their CSV files,
    each a list of objects by label) and "notes"; NA is null.

    \b
    Examples:
      dasfprof analyse traces/
      dasfprof analyse -a findings traces/Tutorial_5
      dasfprof analyse -a function --head 20 -o tables/ 'traces/Tutorial_5*'
      dasfprof analyse --json traces/ | jq '.findings[].Finding'
    """
    if as_json and output is not None:
        raise click.UsageError("--json and --output cannot be used together.")
    analyser, title = open_analyser(source)
    names = [name for name in TABLES if name in analyses] or tables_of(analyser.trace)
    if as_json:
        from dasfprof.cli.document import document

        for piece in document(analyser, title, names, head):
            click.echo(piece, nl=False)
        return
    print_summary(analyser.trace, title)
    answers = print_answers(analyser, head or DEFAULT_ROWS, names=names)
    if output is not None:
        from dasfprof.report.formats.csv import write_csv

        output.mkdir(parents=True, exist_ok=True)
        files = [
            write_csv(frame, output / TABLES[name].file_name) for name, frame in answers.items()
        ]
        say(f"Wrote {', '.join(file.name for file in files)} into {clean(output)}.", apart=True)
