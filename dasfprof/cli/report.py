"""``dasfprof report``: a recorded run as one HTML file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasfprof.cli.tables import open_source, say
from dasfprof.report.text import clean, format_size

if TYPE_CHECKING:
    from dasfprof.database import MultiEventDatabase

#: Signs of a run's name that a file's name keeps; others become dashes.
_SIGNS = "-_.+ "


@click.command()
@click.argument("source")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: the run's name and .html, in the working directory.",
)
@click.option("--open", "opened", is_flag=True, help="Show it in the browser.")
def report(source: str, output: Path | None, opened: bool) -> None:
    """Write a run as one HTML file: the timeline, resources and tables.

    The file needs no server and no network: send it to anyone. SOURCE is as for `dasfprof analyse`.

    \b
    Examples:
      dasfprof report traces/Tutorial_5
      dasfprof report traces/ -o run.html --open
    """
    from dasfprof import TraceAnalyser, write_report

    database = open_source(source)
    name = _run_name(database) or Path(source).resolve().name
    if output is None:
        output = Path("".join(sign if sign.isalnum() or sign in _SIGNS else "-" for sign in name))
        output = output.with_name(f"{output.name.lstrip('.-')[:200] or 'run'}.html")
    output.parent.mkdir(parents=True, exist_ok=True)
    path = write_report(TraceAnalyser(database), output, title=name)
    say(f"Wrote {clean(path)}, {format_size(path.stat().st_size)}.")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        say("No browser could be started; open the file in any.", err=True)


def _run_name(database: MultiEventDatabase) -> str | None:
    """Give what the files' headers call the run; None where they name none, or several."""
    from dasfprof.database import FileDatabase

    names = {
        str(item.trace_file().read_header().get("run") or "")
        for item in database.databases
        if isinstance(item, FileDatabase)
    }
    return names.pop() or None if len(names) == 1 else None
