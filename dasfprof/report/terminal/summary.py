"""A run in two lines: what ran, when, on what, how long, how well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dasfprof.report.terminal.output import terminal_width
from dasfprof.report.terminal.paragraphs import heading, say
from dasfprof.text import elide

if TYPE_CHECKING:
    from dasfprof.analysis import Trace


def print_summary(trace: Trace, title: str) -> None:
    """Print the run's name and time, and how much it computed where."""
    from dasfprof.analysis.trace.under_way import RecordingEnd
    from dasfprof.report.run_summary import in_words, start_in_words, summarise, when

    facts = summarise(trace)
    time = when(facts)
    if trace.recording is RecordingEnd.GOES_ON:
        time = f"{time}, goes on" if time else "goes on"
    heading(elide(title, terminal_width()), f"  {time}" if time else "")
    say(in_words(facts))
    if start := start_in_words(facts):
        say(start)
