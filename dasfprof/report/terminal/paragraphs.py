"""Headings, paragraphs and notes, laid out by rich and wrapped to the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dasfprof.report.terminal.console import console
from dasfprof.report.terminal.output import echo, terminal_width
from dasfprof.text import elide

_MAX_NOTE = 400
#: Lines beyond are hard to read: of paragraphs, and of entries with their margin.
_WIDEST, _WIDEST_ENTRY = 100, 110
#: The least columns of an entry's text, however narrow the terminal is.
_NARROWEST = 20


class Part(NamedTuple):
    """A part of an entry, which begins on a line of its own."""

    text: str
    #: Rich's style.
    style: str = ""
    #: Stands before its first line; further lines are indented as it is wide.
    lead: str = ""


def heading(title: str, rest: str = "", *, err: bool = False, apart: bool = False) -> None:
    """Print a bold title and what follows it; `apart` puts an empty line before it."""
    _print(Text.assemble("\n" * apart, (title, "bold"), rest), err=err)


def say(text: str, *, err: bool = False, apart: bool = False) -> None:
    """Print a paragraph, wrapped; words wider than a line, such as paths, stay whole."""
    width = min(terminal_width(), _WIDEST)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    echo("\n" * apart + "\n".join(lines), err=err)  # rich would break those words


def print_notes(notes: Sequence[str], *, err: bool = False) -> None:
    """Print notes on missing data, after an empty line."""
    for position, note in enumerate(notes):
        say(f"Note: {elide(note, _MAX_NOTE)}", err=err, apart=position == 0)


def print_entry(
    margin: str, style: str | None, parts: Sequence[Part], *, err: bool = False
) -> None:
    """Print parts below each other, with a margin that stands before the first.

    Parameters
    ----------
    margin
        The text in the margin, as wide as that is.
    style
        Its style, in rich's words.
    parts
        The parts.
    err
        Whether to print on standard error.
    """
    width = max(min(terminal_width(), _WIDEST_ENTRY) - len(margin), _NARROWEST)
    entry = Table.grid()
    entry.add_column(width=len(margin), no_wrap=True)
    entry.add_column(width=width, overflow="fold")
    for number, part in enumerate(parts):
        entry.add_row("" if number else Text(margin, style or ""), _hanging(part))
    _print(entry, err=err, width=len(margin) + width)


def _hanging(part: Part) -> RenderableType:
    text = Text(part.text, part.style)
    if not part.lead:
        return text
    lines = Table.grid()
    lines.add_column(width=len(part.lead), no_wrap=True)
    lines.add_column(overflow="fold")
    lines.add_row(part.lead, text)
    return lines


def _print(what: RenderableType, *, err: bool, width: int | None = None) -> None:
    console(err=err).print(what, width=width, overflow="ignore", crop=False)
