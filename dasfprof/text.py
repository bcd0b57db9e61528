"""Functions that format sizes, durations, counts and dates, or make text safe to display.

The names of files, workers and tasks in a trace may contain any characters. Displayed names must
not act as control sequences of a terminal or as HTML in a notebook. `clean`, `elide` and `escape`
make them harmless.

The HTML report formats numbers in the same way (``report/page/format.js``).
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

_ELLIPSIS = "…"
_PREFIXES = ("", "k", "M", "G", "T", "P")
#: Smallest number that becomes 1000 when it is rounded to three digits.
_NEXT_PREFIX = 999.5
#: Threshold (fraction): smaller fractions are shown as "under 0.1 %", because times are not
#: measured more precisely.
_LEAST_SHARE = 0.001
#: Threshold (seconds) from which durations are shown in minutes.
_MINUTES = 120


def clean(text: object) -> str:
    r"""Convert any text to a single line of visible characters.

    Characters that are not printable (control characters, line breaks, marks that change the
    direction of text, lone surrogates) are escaped as in Python: ``\x1b``, ``\u202e``.
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


def escape(text: object) -> str:
    """Convert any text to text that is safe inside an HTML element or an HTML attribute."""
    return html.escape(clean(text))


def elide(text: object, width: int) -> str:
    """Clean a text, and omit its middle if it is wider than `width` columns."""
    text = str(text)
    if len(text) > 4 * width:  # A character takes at most two columns.
        text = f"{text[: 2 * width]}{_ELLIPSIS}{text[-2 * width :]}"
    text = clean(text)
    if display_width(text) <= width:
        return text
    # The end of the text remains, because the last numbers of a key identify its chunk.
    tail = _cut(text[::-1], (width - 1) // 3)[::-1]
    head = _cut(text, width - 1 - display_width(tail))
    return f"{head}{_ELLIPSIS}{tail}"


def excerpt(text: object, length: int = 200) -> str:
    """Return a text as one line of at most `length` characters. A longer text loses its end."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1] + _ELLIPSIS


def display_width(text: str) -> int:
    """Return the number of terminal columns that a text takes. The text must be clean."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def count_of(number: float, noun: str) -> str:
    """Format a number with a noun in singular or plural: ``1 file``, ``1,200 files``."""
    return f"{number:,.0f} {noun}" + "s" * (number != 1)


def name_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first `most` names and the number of further names: ``a, b and 2 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_size(nbytes: float) -> str:
    """Format a number of bytes with three digits (1 kB is 1000 B): ``312 B``, ``29.1 kB``."""
    if not math.isfinite(nbytes):
        return "unknown"
    step = 0
    while nbytes >= _NEXT_PREFIX and step < len(_PREFIXES) - 1:
        nbytes, step = nbytes / 1000, step + 1
    return f"{_digits(nbytes) if step else f'{nbytes:.0f}'} {_PREFIXES[step]}B"


def format_duration(seconds: float) -> str:
    """Format a duration: ``52.1 µs``, ``4.08 s``, ``2 min 5 s``, ``3 h 20 min``."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"−{format_duration(-seconds)}"  # noqa: RUF001
    if seconds == 0:
        return "0 s"
    if seconds < _NEXT_PREFIX / 1e6:
        return f"{_digits(seconds * 1e6)} µs"
    if seconds < _NEXT_PREFIX / 1e3:
        return f"{_digits(seconds * 1e3)} ms"
    if seconds < _MINUTES:
        return f"{_digits(seconds)} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {remainder} s"


def format_share(share: float) -> str:
    """Format a fraction as a percentage: ``36 %``, ``2.4 %``, ``under 0.1 %``."""
    if not math.isfinite(share):
        return "unknown"
    if 0 < share < _LEAST_SHARE:
        return "under 0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.2g} %"


def format_factor(factor: float) -> str:
    """Format a ratio: ``1.3``, ``12``."""
    return f"{factor:.2g}" if factor < 10 else f"{factor:,.0f}"


def format_date(seconds: float) -> str:
    """Format Unix seconds as a date and time in UTC, or as a number if they are out of range."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds!r} (Unix)"


def _digits(number: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def _cut(text: str, width: int) -> str:
    """Return the longest start of a text that takes at most this number of columns."""
    columns = 0
    for position, character in enumerate(text):
        columns += _character_width(character)
        if columns > width:
            return text[:position]
    return text


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def file_part(text: str) -> str:
    """Convert a text to a safe part of a file name. The scheme of an address is removed."""
    scheme, _, address = str(text).rpartition("://")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", address if scheme else str(text))[:80] or "_"


def job_words(job: Any) -> str:
    """Format the variables that identify a batch job as ``name value, ...``.

    If `job` is not a dict, the process did not run in a batch job, and the result is empty.
    """
    if not isinstance(job, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in job.items())
