"""Printing of paragraphs and notes."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from dasfprof.text import elide

_MAX_NOTE = 400

#: Replacements for characters that some encodings lack.
_PLAIN_SIGNS = str.maketrans({"─": "-", "…": "~", "·": "-", "█": "#", "▌": "", "→": ">", "µ": "u"})


def print_notes(notes: Sequence[str], *, err: bool = False) -> None:
    """Print notes on missing data, after an empty line."""
    for position, note in enumerate(notes):
        say(f"Note: {elide(note, _MAX_NOTE)}", err=err, apart=position == 0)


def say(text: str, *, err: bool = False, apart: bool = False) -> None:
    """Print a paragraph, wrapped; `apart` puts an empty line before it."""
    lines = textwrap.wrap(
        text, min(terminal_width(), 100), break_long_words=False, break_on_hyphens=False
    )
    echo("\n" * apart + "\n".join(lines), err=err)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print; characters that the stream's encoding lacks are replaced."""
    stream: Any = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN_SIGNS)
        text = plain.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(text, err=err)


def terminal_width() -> int:
    """Return the terminal's width, or COLUMNS; 100 where the output is not a terminal."""
    return shutil.get_terminal_size(fallback=(100, 24)).columns
