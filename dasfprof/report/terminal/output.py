"""Printing of lines as the stream can show them."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import click

#: Replacements for characters that some encodings lack.
_PLAIN_SIGNS = str.maketrans(
    {"─": "-", "━": "-", "╸": "-", "╺": " ", "…": "~", "·": "-", "→": ">", "µ": "u", "█": "#"}
    | dict.fromkeys("▉▊▋▌", "#")
    | dict.fromkeys("▍▎▏", " ")
)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print, without colours if NO_COLOR says so; replace what the stream's encoding lacks."""
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(plain(text, sys.stderr if err else sys.stdout), err=err, color=color)


def plain(text: str, stream: Any) -> str:
    """Return a text with the characters that a stream's encoding lacks replaced."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN_SIGNS)
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def terminal_width() -> int:
    """Return the terminal's width, or COLUMNS; 100 where the output is not a terminal."""
    return shutil.get_terminal_size(fallback=(100, 24)).columns
