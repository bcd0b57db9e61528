"""``dasfprof report`` and ``dasfprof export``: a run as one HTML file, or in other formats."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from dasfprof.cli.sources import (
    between_option,
    client_option,
    open_analyser,
    price_option,
)
from dasfprof.report.formats import FORMATS, FormatName, file_for
from dasfprof.report.terminal.console import say
from dasfprof.text import clean, count_of, format_size


@click.command()
@click.argument("source")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. The default is the run's name with .html, in the working directory.",
)
@click.option("--open", "opened", is_flag=True, help="Open the file in the browser.")
@price_option
@between_option
@client_option
def report(
    source: str,
    output: Path | None,
    opened: bool,
    between: tuple[str, str] | None,
    name: str | None,
) -> None:
    """Write a run as one HTML file that works offline.

    It contains the findings, the timeline, resources and tables. SOURCE takes the
    same forms as in `dasfprof analyse`.

    \b
    Examples:
      dasfprof report traces/Tutorial_5
      dasfprof report traces/ -o run.html --open
    """
    analyser, title = open_analyser(source, between, client=name)
    output = output or file_for(title, ".html")
    output.parent.mkdir(parents=True, exist_ok=True)
    path = analyser.report(output, title=title)
    say(f"Wrote {clean(path)}, {format_size(path.stat().st_size)}.")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        say("No browser could be started. Open the file yourself.", err=True)


@click.command()
@click.argument("source")
@click.option(
    "--to",
    required=True,
    type=click.Choice(list(FORMATS)),
    help="Format. " + " ".join(f"{each.name}: {each.about}." for each in FORMATS.values()),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File or directory to write. The default is in the working directory, and has the run's "
    "name with the suffix of the format: "
    + ", ".join(each.ending for each in FORMATS.values())
    + ".",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="With --to otlp, send the spans to this URL, such as http://localhost:4318, "
    "instead of writing a file. Environment variables of OpenTelemetry apply, such as "
    "OTEL_EXPORTER_OTLP_HEADERS.",
)
@between_option
@client_option
def export(  # noqa: PLR0917
    source: str,
    to: FormatName,
    output: Path | None,
    endpoint: str | None,
    between: tuple[str, str] | None,
    name: str | None,
) -> None:
    """Write a run in the formats of other tools.

    SOURCE takes the same forms as in `dasfprof analyse`.

    \b
    Examples:
      dasfprof export traces/Tutorial_5 --to perfetto
      dasfprof export traces/ --to csv -o tables/
      dasfprof export traces/ --to parquet -o parquet/
      dasfprof export traces/ --to otlp --endpoint http://localhost:4318
    """
    if endpoint is not None and (to != "otlp" or output is not None):
        raise click.UsageError("--endpoint requires --to otlp, and cannot be used with --output.")
    analyser, title = open_analyser(source, between, client=name)
    if endpoint is not None:
        from dasfprof.report.formats.otlp import send_spans

        sent = send_spans(analyser, endpoint, title)
        say(f"Sent {count_of(sent, 'span')} to {clean(endpoint)}.")
        return
    output = output or file_for(title, FORMATS[to].ending)
    output.parent.mkdir(parents=True, exist_ok=True)
    path = analyser.export(output, to=to, title=title)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    size = format_size(sum(file.stat().st_size for file in files))
    count = f"{count_of(len(files), 'file')}, " if path.is_dir() else ""
    say(f"Wrote {clean(path)}, {count}{size}.")
    say(FORMATS[to].hint)
