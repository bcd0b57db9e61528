"""``dasfprof export``: a recorded run in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.cli.sources import between_option, open_analyser
from dasfprof.report.file_names import file_for
from dasfprof.report.formats import all_formats
from dasfprof.report.terminal.paragraphs import say
from dasfprof.text import clean, count_of, format_size

if TYPE_CHECKING:
    from dasfprof.report.formats import FormatName

_FORMATS = all_formats()


@click.command()
@click.argument("source")
@click.option(
    "--to",
    required=True,
    type=click.Choice(list(_FORMATS)),
    help="; ".join(f"{each.name}: {each.about}" for each in _FORMATS.values()) + ".",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file or directory to write. Default, in the working directory: the run's name and "
    + " or ".join(f"{each.ending} ({each.name})" for each in _FORMATS.values())
    + ".",
)
@between_option
def export(
    source: str, to: FormatName, output: Path | None, between: tuple[str, str] | None
) -> None:
    """Write a run in the formats of other tools.

    SOURCE is as for `dasfprof analyse`.

    \b
    Examples:
      dasfprof export traces/Tutorial_5 --to perfetto
      dasfprof export traces/ --to csv -o tables/
      dasfprof export traces/ --to parquet -o parquet/
    """
    analyser, title = open_analyser(source, between)
    output = output or file_for(title, _FORMATS[to].ending)
    output.parent.mkdir(parents=True, exist_ok=True)
    path = analyser.export(output, to=to, title=title)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    size = format_size(sum(file.stat().st_size for file in files))
    count = f"{count_of(len(files), 'file')}, " if path.is_dir() else ""
    say(f"Wrote {clean(path)}, {count}{size}.")
    say(_FORMATS[to].hint)
