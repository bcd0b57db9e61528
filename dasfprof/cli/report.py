"""``dasfprof report``: a recorded run as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from dasfprof.cli.sources import between_option, open_analyser
from dasfprof.report.file_names import file_for
from dasfprof.report.terminal.paragraphs import say
from dasfprof.text import clean, format_size


@click.command()
@click.argument("source")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: the run's name and .html, in the working directory.",
)
@click.option("--open", "opened", is_flag=True, help="Open the file in the browser.")
@between_option
def report(source: str, output: Path | None, opened: bool, between: tuple[str, str] | None) -> None:
    """Write a run as one HTML file: findings, timeline, resources and tables.

    The file needs no server and no network: send it to anyone. SOURCE is as for `dasfprof analyse`.

    \b
    Examples:
      dasfprof report traces/Tutorial_5
      dasfprof report traces/ -o run.html --open
    """
    analyser, title = open_analyser(source, between)
    output = output or file_for(title, ".html")
    output.parent.mkdir(parents=True, exist_ok=True)
    path = analyser.report(output, title=title)
    say(f"Wrote {clean(path)}, {format_size(path.stat().st_size)}.")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        say("No browser could be started; open the file by hand.", err=True)
