"""Text for people: what a trace holds as one line that commands nothing, and numbers in words.

Names of files, workers and tasks come from whoever wrote the trace. A terminal or a notebook shows
them, and obeys none of them.
"""

from __future__ import annotations

import html
import unicodedata


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
