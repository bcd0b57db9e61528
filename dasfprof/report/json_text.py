"""Text of a trace as JSON that every reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any

_ELLIPSIS = "…"


def json_text(text: str, longest: int | None = None) -> str:
    r"""Write a text as a JSON string, in ASCII.

    Lone surrogates, which are no text to most readers of JSON, are written as ``\udcxx`` in plain
    letters. A text of more than `longest` characters loses its middle.
    """
    text = text if longest is None else shortened(text, longest)
    return encode_basestring_ascii(without_surrogates(text))


def shortened(text: str, longest: int) -> str:
    """Leave the middle out of a text of more characters than that."""
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}{_ELLIPSIS}{text[len(text) - (longest - head - 1) :]}"


def json_texts(values: Iterable[Any], longest: int | None = None) -> list[str]:
    """Write the text of each value as a JSON string."""
    return [json_text(str(value), longest) for value in values]


def without_surrogates(text: str) -> str:
    r"""Write lone surrogates as ``\udcxx``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_of(value: Any) -> str:
    """Write a value as JSON in ASCII; what JSON has no number for is null, times are ISO 8601."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON has."""
    if isinstance(value, dict):
        return {without_surrogates(str(name)): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value
