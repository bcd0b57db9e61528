"""``dasfprof history``: the runs of a directory over time."""

from __future__ import annotations

from pathlib import Path

import click

from dasfprof.cli.sources import price_option
from dasfprof.report.terminal.console import echo, heading, say, terminal_width
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import clean, count_of, elide

#: Width of the longest bar in characters.
_BAR = 16
#: Columns that are left out first if the table is too wide, in this order.
_EXPENDABLE = (
    *("Versions", "Efficiency (%)", "Idle (%)", "Failed", "Worker Hours", "Task Runs"),
    *("Bar", "Run"),
)


@click.command()
@click.argument("directory", default=".")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Show only this many of the newest runs of each pipeline.",
)
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page instead, with a chart and a table for each pipeline.",
)
@price_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with all runs.")
def history(directory: str, last: int, page: Path | None, *, as_json: bool) -> None:
    """List the runs in a directory, and show whether they get slower.

    Runs in subdirectories are included. Summaries of the runs are saved in each directory
    (.dasfprof-history.json), so that later calls read only new runs. With a price, the cost of
    each run is listed.

    The JSON document has "schema", "runs" and "trends".

    \b
    Examples:
      dasfprof history traces
      dasfprof history --html traces/index.html traces
      dasfprof history --json traces | jq '.trends[] | select(.Trend == "slower")'
    """
    from dasfprof.analysis.history import history as history_of
    from dasfprof.report.page.history import pipelines_of, write_history

    table = history_of(directory)
    trends = table.attrs["trends"]
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        words = f"Wrote {clean(write_history(table, page))}: {count_of(len(table), 'run')}."
        say(words, err=as_json)
    if as_json:
        from dasfprof.report.documents import json_of, records, schema_of

        document = {"schema": schema_of("history"), "runs": records(table), "trends": trends}
        click.echo(json_of(document))
    if as_json or page is not None:
        return
    table["Began (UTC)"] = table["Began (UTC)"].dt.floor("s")
    for position, (name, runs, trend) in enumerate(pipelines_of(table)):
        shown = f" (showing the last {last})" if len(runs) > last else ""
        about = f", {count_of(len(runs), 'run')}{shown}{trend}"
        heading(elide(name, terminal_width()), about, apart=position > 0)
        newest = runs.tail(last).drop(columns=["Pipeline", "Directory"])
        share = (newest["Wall Time (s)"] / newest["Wall Time (s)"].max()).fillna(0.0)
        newest.insert(3, "Bar", ["█" * round(each * _BAR) for each in share.tolist()])
        echo(format_table(newest, terminal_width(), expendable=_EXPENDABLE))
