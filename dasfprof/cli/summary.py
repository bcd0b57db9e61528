"""A run in two lines: what ran, when, on what, how long, how well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dasfprof.cli.streams import echo, say, terminal_width
from dasfprof.report.text import elide, format_date

if TYPE_CHECKING:
    from dasfprof.analysis import Trace


def print_summary(trace: Trace, title: str) -> None:
    """Print the run's name and time, and how much it computed where."""
    from dasfprof.report.run_summary import summarise

    facts = summarise(trace)
    echo(click.style(elide(title, terminal_width()), bold=True) + _when(facts))
    used = ""
    if facts["capacity"]:
        used = f" Tasks held {facts['compute'] / facts['capacity']:.0%} of the threads' time."
    failed = f", {facts['failed']:,} failed" if facts["failed"] else ""
    threads = f", {_count(facts['threads'], 'thread')}," if facts["threads"] else ""
    runs = f"{_count(facts['tasks'], 'task run')} of {_count(facts['functions'], 'function')}"
    say(
        f"{runs}{failed}, on {_count(facts['workers'], 'worker')}{threads} of "
        f"{_count(len(facts['hosts']), 'host')}.{used}"
    )


def _when(facts: dict[str, Any]) -> str:
    if facts["begin"] is None or facts["seconds"] is None:
        return ""
    return f"  {format_date(facts['begin'])} UTC, {facts['seconds']:.1f} s"


def _count(number: float, noun: str) -> str:
    return f"{number:,.0f} {noun}" + "s" * (number != 1)
