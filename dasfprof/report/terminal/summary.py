"""A run in two lines: what ran, when, on what, how long, how well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dasfprof.report.terminal.output import echo, say, terminal_width
from dasfprof.text import elide

if TYPE_CHECKING:
    from dasfprof.analysis import Trace


def print_summary(trace: Trace, title: str) -> None:
    """Print the run's name and time, and how much it computed where."""
    from dasfprof.report.run_summary import in_words, summarise, when

    facts = summarise(trace)
    time = when(facts)
    name = click.style(elide(title, terminal_width()), bold=True)
    echo(f"{name}  {time}" if time else name)
    say(in_words(facts))
