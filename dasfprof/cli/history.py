"""``dasfprof history``: the runs of a directory over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dasfprof.cli.sources import price_option
from dasfprof.report.terminal.console import echo, heading, terminal_width
from dasfprof.report.terminal.tables import format_table
from dasfprof.text import count_of, elide

if TYPE_CHECKING:
    import pandas as pd

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
@price_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with all runs.")
def history(directory: str, last: int, *, as_json: bool) -> None:
    """List the runs in a directory, and show whether they get slower.

    Runs in subdirectories are included. Summaries of the runs are saved in each directory
    (.dasfprof-history.json), so that later calls read only new runs. With a price, the cost of
    each run is listed.

    The JSON document has "schema", "runs" and "trends".

    \b
    Examples:
      dasfprof history traces
      dasfprof history --json traces | jq '.trends[] | select(.Trend == "slower")'
    """
    from dasfprof.analysis.history import history as history_of

    table = history_of(directory)
    if as_json:
        from dasfprof.report.documents import json_of, records, schema_of

        document = {"schema": schema_of("history"), "runs": records(table)}
        click.echo(json_of({**document, "trends": table.attrs["trends"]}))
        return
    table["Began (UTC)"] = table["Began (UTC)"].dt.floor("s")
    for position, (name, runs, trend) in enumerate(_pipelines(table)):
        shown = f" (showing the last {last})" if len(runs) > last else ""
        about = f", {count_of(len(runs), 'run')}{shown}{trend}"
        heading(elide(name, terminal_width()), about, apart=position > 0)
        newest = runs.tail(last).drop(columns=["Pipeline", "Directory"])
        share = (newest["Wall Time (s)"] / newest["Wall Time (s)"].max()).fillna(0.0)
        newest.insert(3, "Bar", ["█" * round(each * _BAR) for each in share.tolist()])
        echo(format_table(newest, terminal_width(), expendable=_EXPENDABLE))


def _pipelines(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Yield the name, runs, and trend (a clause or an empty text) of each pipeline in a history."""
    start = 0
    for trend in runs.attrs["trends"]:
        members = runs.iloc[start : start + trend["Runs"]].reset_index(drop=True)
        start += trend["Runs"]
        clause = ""
        if trend["Trend"] in ("slower", "faster"):
            clause = f", {trend['Trend']} by {abs(trend['Slope (%)']):.1f} % per run"
            clause += f" (p = {trend['p-Value']:.2g}, {count_of(trend['Compared Runs'], 'run')})"
        elif trend["Trend"] == "none":
            clause = f", no trend (p = {trend['p-Value']:.2g})"
        yield str(trend["Pipeline"]), members, clause
