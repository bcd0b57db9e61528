"""``dasfprof compare``: the effect of a change on runs, and a regression gate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.sources import head_option
from dasfprof.report.terminal.console import say
from dasfprof.text import clean, format_size

if TYPE_CHECKING:
    from dasfprof.analysis.comparison import Comparison, Gate

_ROWS = 8
#: Replacement of ``--`` in the arguments, so that Click does not parse options after it as sources.
#: No path contains this character.
_BETWEEN = "\0"
_SLOWER, _UNDECIDED = 3, 4


class _TwoSides(click.Command):
    """A command whose arguments have two sides, which ``--`` separates."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_BETWEEN if arg == "--" else arg for arg in args])


def _share(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Parse a percentage, and return it as a fraction, or None if it was not given."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
    except ValueError:
        share = math.nan
    if not 0 <= share < math.inf:
        raise click.BadParameter(f"{text!r} is not a percentage. Pass a value such as 10%.")
    return share


def _sides(sources: tuple[str, ...]) -> tuple[list[str], list[str]]:
    if _BETWEEN in sources:
        place = sources.index(_BETWEEN)
        before, after = list(sources[:place]), list(sources[place + 1 :])
        if not before or not after or _BETWEEN in after:
            raise click.UsageError(
                "One side has no runs. Pass sources before and after a single --."
            )
        return before, after
    if len(sources) != 2:
        raise click.UsageError(
            f"Got {len(sources)} sources. Pass two, or several for each side, separated by --: "
            "dasfprof compare before/* -- after/*"
        )
    return [sources[0]], [sources[1]]


@click.command(cls=_TwoSides)
@click.argument("sources", metavar="BEFORE... [--] AFTER...", nargs=-1)
@click.option(
    "--fail-if-slower",
    "limit",
    metavar="PERCENT",
    callback=_share,
    help="Exit with code 3 if AFTER is certainly more than PERCENT (such as 10%) slower than "
    "BEFORE. Exit with code 4 if this cannot be decided.",
)
@head_option(_ROWS)
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write an HTML page with a chart of what became slower or faster, both timelines, "
    "and all tables. It works offline.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with all rows.")
def compare(
    sources: tuple[str, ...], limit: float | None, head: int, page: Path | None, *, as_json: bool
) -> None:
    """Compare two groups of runs, and test the difference.

    BEFORE and AFTER take the same forms as SOURCE in `dasfprof analyse`. A directory means all runs
    in it. If a side has several sources, put -- between the two sides. A difference between single
    runs may be chance, so record five runs for each side to be certain.

    The JSON document has "schema", "verdict", "gate" (the result of --fail-if-slower), "sentences",
    "notes", and the tables "runs", "waterfall", "waterfall_by_step", "thread_time", "functions",
    "steps", "memory", "hot_lines", "findings" and "surroundings" (differences of hosts, versions
    and settings).

    \b
    Examples:
      dasfprof compare traces/load-1795159303 traces/load-1795160412
      dasfprof compare before/* -- after/*
      dasfprof compare --html compared.html before/ after/
      dasfprof compare --fail-if-slower 10% baseline/ new/
    """
    before, after = _sides(sources)
    from dasfprof.analysis.comparison import check_slower
    from dasfprof.handles.comparison import compare as compare_runs

    comparison = compare_runs(before, after)
    gate = None if limit is None else check_slower(comparison, limit)
    if as_json:
        from dasfprof.report.documents import json_of

        click.echo(json_of(comparison_data(comparison, gate)))
    else:
        from dasfprof.report.terminal.findings import print_comparison

        print_comparison(comparison, head)
        if gate is not None:
            say(gate.text, apart=True)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        comparison.report(page)
        say(f"Wrote {clean(page)}, {format_size(page.stat().st_size)}.", apart=True, err=as_json)
    if gate is not None and gate.is_closed:
        raise click.exceptions.Exit(_SLOWER)
    if gate is not None and math.isnan(gate.p):
        raise click.exceptions.Exit(_UNDECIDED)


def comparison_data(comparison: Comparison, gate: Gate | None = None) -> dict[str, Any]:
    """Return a comparison as dicts and lists.

    Each table is a list with one dict per row, whose keys are the column labels. `gate` is the
    result of ``--fail-if-slower``, or None.
    """
    from dasfprof.report.documents import records, schema_of

    verdict = comparison.verdict
    tables = {
        "runs": comparison.runs,
        "waterfall": comparison.waterfall(),
        "waterfall_by_step": comparison.waterfall("step"),
        "thread_time": comparison.thread_time(),
        "functions": comparison.functions,
        "steps": comparison.steps,
        "memory": comparison.memory,
        "hot_lines": comparison.hot_lines(),
        "findings": comparison.findings,
        "surroundings": comparison.surroundings,
    }
    return {
        "schema": schema_of("compare"),
        "verdict": {
            "kind": verdict.kind,
            "certain": verdict.certain,
            "before": verdict.means[0],
            "after": verdict.means[1],
            "change": verdict.change,
            "p": verdict.p,
        },
        "gate": None
        if gate is None
        else {"limit": gate.limit, "closed": gate.is_closed, "p": gate.p, "text": gate.text},
        "sentences": comparison.sentences,
        "notes": comparison.notes,
        **{name: records(table) for name, table in tables.items()},
    }
