"""``dasfprof export``: a recorded run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.cli.sources import file_for, open_source, run_title
from dasfprof.report.terminal.output import say
from dasfprof.text import clean, format_size

if TYPE_CHECKING:
    from dasfprof.report.formats.export import Format

#: How the default output's name ends.
_ENDINGS: dict[Format, str] = {"perfetto": ".json.gz", "csv": "-csv", "parquet": "-parquet"}
_HINTS: dict[Format, str] = {
    "perfetto": "Open it at https://ui.perfetto.dev (it stays on this machine), or with "
    "chrome://tracing.",
    "csv": "Times are seconds from the run's begin, or UTC; NA is an empty cell.",
    "parquet": "Each column's meaning and unit are in its field's metadata, and in PARQUET.md.",
}


@click.command()
@click.argument("source")
@click.option(
    "--to",
    required=True,
    type=click.Choice(list(_ENDINGS)),
    help="Perfetto's timeline, one file; all tables as CSV; the trace as Parquet.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file (perfetto; .json or .json.gz) or directory (csv, parquet) to write. Default: "
    "the run's name and .json.gz, -csv or -parquet, in the working directory.",
)
def export(source: str, to: Format, output: Path | None) -> None:
    """Write a run in the formats of other tools.

    SOURCE is as for `dasfprof analyse`.

    \b
    Examples:
      dasfprof export traces/Tutorial_5 --to perfetto
      dasfprof export traces/ --to csv -o tables/
      dasfprof export traces/ --to parquet -o parquet/
    """
    database = open_source(source)
    import dasfprof

    title = run_title(database, source)
    output = output or file_for(title, _ENDINGS[to])
    output.parent.mkdir(parents=True, exist_ok=True)
    analyser = dasfprof.TraceAnalyser(database)
    path = dasfprof.export(analyser, output, to=to, title=title)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    size = format_size(sum(file.stat().st_size for file in files))
    say(f"Wrote {clean(path)}, {f'{len(files)} files, ' if path.is_dir() else ''}{size}.")
    say(_HINTS[to])
