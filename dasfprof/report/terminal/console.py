"""The console for all output, with characters and line widths that the stream supports.

Text from a trace is never interpreted as rich's markup. Callers remove escape sequences from it.
Rich is imported only by functions that lay something out, so help, notes and errors do not need it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from dasfprof.text import elide

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Replacements of characters that some encodings do not have.
_PLAIN_SIGNS = str.maketrans(
    {"─": "-", "━": "-", "╸": "-", "╺": " ", "…": "~", "·": "-", "→": ">", "µ": "u", "█": "#"}
    | dict.fromkeys("▉▊▋▌", "#")
    | dict.fromkeys("▍▎▏", " ")
)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text, without colours if NO_COLOR is set. `plain` replaces unsupported characters."""
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(plain(text, sys.stderr if err else sys.stdout), err=err, color=color)


def plain(text: str, stream: Any) -> str:
    """Return a text in which characters that a stream's encoding does not have are replaced."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN_SIGNS)
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def terminal_width() -> int:
    """Return the variable COLUMNS, or the terminal's width, or 100 if there is no terminal."""
    return shutil.get_terminal_size(fallback=(100, 24)).columns


_SPACES = re.compile(r" +\n")


class _PlainStream:
    """A stream that replaces characters that its encoding does not have."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not self._stream.isatty():  # rich fills lines with spaces.
            text = _SPACES.sub("\n", text)
        self._stream.write(plain(text, self._stream))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _console(file: Any, width: int, **about: Any) -> Console:
    """Return a console that does not interpret markup, and that writes only to the given stream."""
    from rich.console import Console

    as_it_is: Any = dict.fromkeys(("markup", "highlight", "emoji", "force_jupyter"), False)
    return Console(file=file, width=width, **as_it_is, **about)


def console(*, err: bool = False) -> Console:
    """Return a console on standard output or standard error, with the terminal's width."""
    return _console(_PlainStream(sys.stderr if err else sys.stdout), terminal_width())


def as_text(renderable: RenderableType, width: int) -> str:
    """Return a renderable as lines of plain text."""
    lines = io.StringIO()
    _console(lines, width, force_terminal=False, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in lines.getvalue().splitlines())


_AS_WRITTEN = '<pre style="white-space:pre;overflow-x:auto">{code}</pre>'


def as_html(renderable: RenderableType, width: int) -> str:
    """Return a renderable as HTML with inline styles."""
    recorded = _console(io.StringIO(), width, record=True, color_system="truecolor")
    recorded.print(renderable)
    return recorded.export_html(code_format=_AS_WRITTEN, inline_styles=True)


#: Colours of findings by severity.
SEVERITY_COLOURS = {"high": "red", "medium": "yellow", "low": "cyan"}
_MAX_NOTE = 400
#: Maximum width of paragraphs, and of entries with their margin, because long lines are hard to
#: read.
_WIDEST, _WIDEST_ENTRY = 100, 110
#: Minimum width of an entry's text, even if this is wider than the terminal.
_NARROWEST = 20


class Paragraph(NamedTuple):
    """A paragraph of an entry that `print_entry` prints."""

    text: str
    #: Style of the text, as rich names styles.
    style: str = ""
    #: Text before the first line. The other lines are indented by the width of this text.
    lead: str = ""


def verdict(sentences: Iterable[str], colour: str | None) -> list[Paragraph]:
    """Return sentences as paragraphs. The first is bold and coloured, by default in yellow."""
    first, *more = sentences
    return [Paragraph(first, f"bold {colour or 'yellow'}"), *map(Paragraph, more)]


def heading(title: str, details: str = "", *, err: bool = False, apart: bool = False) -> None:
    """Print a bold title, followed by details. If `apart`, print an empty line first."""
    from rich.text import Text

    _print(Text.assemble("\n" * apart, (title, "bold"), details), err=err)


def first_of(rows: int, count: int, noun: str = "") -> str:
    """Return how many of `count` rows are printed, for a heading, or an empty text for all rows."""
    return f" (first {rows} of {count}{noun and f' {noun}'})" if count > rows else ""


def say(text: str, *, err: bool = False, apart: bool = False) -> None:
    """Print a wrapped paragraph.

    Words that are longer than a line, such as paths, are not broken.
    """
    width = min(terminal_width(), _WIDEST)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    echo("\n" * apart + "\n".join(lines), err=err)  # rich would break long words.


def print_notes(notes: Sequence[str], *, err: bool = False) -> None:
    """Print an empty line and the notes about missing data, if there are any."""
    for position, note in enumerate(notes):
        say(f"Note: {elide(note, _MAX_NOTE)}", err=err, apart=position == 0)


def print_entry(
    margin: str, style: str | None, parts: Sequence[Paragraph], *, err: bool = False
) -> None:
    """Print the parts of an entry below each other. The first line begins with the margin's text.

    Parameters
    ----------
    margin
        Text in the margin of the first line. The margin of the other lines is as wide.
    style
        Style of the margin's text, as rich names styles.
    err
        Whether to print on standard error.
    """
    from rich.table import Table
    from rich.text import Text

    width = max(min(terminal_width(), _WIDEST_ENTRY) - len(margin), _NARROWEST)
    entry = Table.grid()
    entry.add_column(width=len(margin), no_wrap=True)
    entry.add_column(width=width, overflow="fold")
    for number, part in enumerate(parts):
        entry.add_row("" if number else Text(margin, style or ""), _hanging(part))
    _print(entry, err=err, width=len(margin) + width)


def _hanging(part: Paragraph) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

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


#: Number of lines that are reserved for the prompt and for the list of tables that were left out.
_RESERVED = 4
#: Minimum number of rows of a printed table, unless the table has fewer rows.
_FEWEST = 3
#: Maximum height of the first table, as a fraction of the remaining lines.
_FOR_THE_FIRST = 0.55


class Screen:
    """A terminal screen that is partly filled. It prints tables that fit into the remaining lines.

    Parameters
    ----------
    taken
        Number of lines that were already printed.
    err
        Whether the tables are printed on standard error.
    """

    def __init__(self, taken: int, *, err: bool = False) -> None:
        self._err = err
        self._left = shutil.get_terminal_size().lines - taken - _RESERVED

    @classmethod
    def of_terminal(cls, taken: int, *, err: bool = False) -> Screen | None:
        """Return the screen of the terminal, or None if the output is a file or a pipe."""
        stream = sys.stderr if err else sys.stdout
        return cls(taken, err=err) if stream.isatty() else None

    @property
    def is_full(self) -> bool:
        """Whether no further table fits."""
        return self._left < _FEWEST + 4

    def print(self, show: Callable[[int], None], rows: int, *, first: bool = False) -> bool:
        """Print a table with as many rows as fit. Return whether it was printed.

        Parameters
        ----------
        show
            Function that prints the table with at most a given number of rows.
        rows
            Maximum number of rows.
        first
            Whether this is the first table. It leaves lines for further tables, and is printed with
            one row even if that does not fit.
        """
        room = self._left * _FOR_THE_FIRST if first else self._left
        least = 1 if first else min(rows, _FEWEST)
        redirect = contextlib.redirect_stderr if self._err else contextlib.redirect_stdout
        for count in range(rows, least - 1, -1):
            printed = io.StringIO()
            with redirect(printed):
                show(count)
            lines = printed.getvalue().count("\n")
            if lines <= room or (first and count == least):
                show(count)
                self._left -= lines
                return True
        return False
