"""Text of a trace as JSON that every reader takes."""

from __future__ import annotations

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

_ELLIPSIS = "…"


def json_text(text: str, longest: int | None = None) -> str:
    r"""Write a text as a JSON string, in ASCII.

    Lone surrogates, which are no text to most readers of JSON, are written as ``\udcxx`` in plain
    letters. A text of more than `longest` characters loses its middle.
    """
    if longest is not None and len(text) > longest:
        head = longest * 2 // 3
        text = f"{text[:head]}{_ELLIPSIS}{text[len(text) - (longest - head - 1) :]}"
    return encode_basestring_ascii(without_surrogates(text))


def json_texts(values: Iterable[Any], longest: int | None = None) -> list[str]:
    """Write the text of each value as a JSON string."""
    return [json_text(str(value), longest) for value in values]


def without_surrogates(text: str) -> str:
    r"""Write lone surrogates as ``\udcxx``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
