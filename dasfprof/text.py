"""Text for people: what a trace holds as one line that commands nothing, and numbers in words.

Names of files, workers and tasks come from whoever wrote the trace. A terminal or a notebook shows
them, and obeys none of them.
"""

from __future__ import annotations

import html
import math
import unicodedata
from datetime import datetime, timezone

ELLIPSIS = "…"


def clean(text: object) -> str:
    r"""Make any text one line of visible characters.

    What is not printable (control characters, escape sequences, line breaks, marks that change the
    direction of text, lone surrogates) is shown as Python writes it: ``\x1b``, ``\n``, ``\u202e``.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else " "
        if unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def format_size(count: int) -> str:
    """Write a number of bytes: ``312 B``, ``29.1 kB``, ``0.2 MB``."""
    if count >= 1e5:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1e3 else f"{count} B"


def count_of(number: float, noun: str) -> str:
    """Write a number of things: ``1 file``, ``1,200 files``."""
    return f"{number:,.0f} {noun}" + "s" * (number != 1)


def escape(text: object) -> str:
    """Make any text safe within an element or an attribute of HTML, and within a message."""
    return html.escape(clean(text))


def elide(text: object, width: int) -> str:
    """Clean a text and leave out its middle where it is wider than `width` columns.

    The end is kept as well as the begin: the last numbers of a key tell which chunk it is.
    """
    text = str(text)
    if len(text) > 4 * width:  # a character takes at most two columns: no more can be shown
        text = f"{text[: 2 * width]}{ELLIPSIS}{text[-2 * width :]}"
    text = clean(text)
    if display_width(text) <= width:
        return text
    tail = _take(text[::-1], (width - 1) // 3)[::-1]
    head = _take(text, width - 1 - display_width(tail))
    return f"{head}{ELLIPSIS}{tail}"


def display_width(text: str) -> int:
    """Count the terminal's columns that a clean text takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def format_seconds(seconds: float) -> str:
    """Write the seconds that a finding puts at stake in three digits; nothing if unknown."""
    if math.isnan(seconds):
        return ""
    if seconds < 0.01:
        return "< 0.01 s"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def format_date(seconds: float) -> str:
    """Write Unix seconds as a date and time in UTC; a trace may claim any."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds!r} (Unix)"


def _take(text: str, width: int) -> str:
    taken = 0
    for position, character in enumerate(text):
        taken += _character_width(character)
        if taken > width:
            return text[:position]
    return text


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
