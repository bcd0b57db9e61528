"""One way to write a size, a duration, a count, a share and a date; and text that is safe to show.

Names of files, workers and tasks come from whoever wrote the trace. A terminal and a notebook show
them, but must not obey them: `clean`, `elide` and `escape` make any text harmless.

The HTML report writes numbers in the same way (``report/page/format.js``).
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
#: Smallest number that three digits round to 1000.
_NEXT_PREFIX = 999.5
#: Smaller shares are written as under it: no share of time is measured so finely.
_LEAST_SHARE = 0.001
#: Seconds from which minutes are easier to read.
_MINUTES = 120


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


def escape(text: object) -> str:
    """Make any text safe within an element or an attribute of HTML, and within a message."""
    return html.escape(clean(text))


def elide(text: object, width: int) -> str:
    """Clean a text and leave out its middle where it is wider than `width` columns.

    Beginning and end are kept: the last numbers of a key tell which chunk it is.
    """
    text = str(text)
    if len(text) > 4 * width:  # a character takes at most two columns: no more can be shown
        text = f"{text[: 2 * width]}{_ELLIPSIS}{text[-2 * width :]}"
    text = clean(text)
    if display_width(text) <= width:
        return text
    tail = _take(text[::-1], (width - 1) // 3)[::-1]
    head = _take(text, width - 1 - display_width(tail))
    return f"{head}{_ELLIPSIS}{tail}"


def excerpt(text: object, length: int = 200) -> str:
    """Write the begin of a text that may be long, such as that of an exception, in one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1] + _ELLIPSIS


def display_width(text: str) -> int:
    """Count the terminal's columns that a clean text takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def count_of(number: float, noun: str) -> str:
    """Write a number of things: ``1 file``, ``1,200 files``."""
    return f"{number:,.0f} {noun}" + "s" * (number != 1)


def name_first(names: Sequence[str], most: int = 3) -> str:
    """Name the first of some things, and say how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_size(nbytes: float) -> str:
    """Write a number of bytes in three digits, a kB being 1000: ``312 B``, ``29.1 kB``."""
    if not math.isfinite(nbytes):
        return "unknown"
    step = 0
    while nbytes >= _NEXT_PREFIX and step < len(_PREFIXES) - 1:
        nbytes, step = nbytes / 1000, step + 1
    return f"{_digits(nbytes) if step else f'{nbytes:.0f}'} {_PREFIXES[step]}B"


def format_duration(seconds: float) -> str:
    """Write a duration in three digits: ``52.1 µs``, ``4.08 s``, ``2 min 5 s``, ``3 h 20 min``."""
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
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_share(share: float) -> str:
    """Write a fraction in percent, whole from 10 % on: ``36 %``, ``2.4 %``, ``under 0.1 %``."""
    if not math.isfinite(share):
        return "unknown"
    if 0 < share < _LEAST_SHARE:
        return "under 0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.2g} %"


def format_factor(factor: float) -> str:
    """Write by how much something is more: ``1.3``, ``12``."""
    return f"{factor:.2g}" if factor < 10 else f"{factor:,.0f}"


def format_date(seconds: float) -> str:
    """Write Unix seconds as a date and time in UTC; a trace may claim any."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds!r} (Unix)"


def _digits(number: float) -> str:
    """Write three significant digits, without a power of ten."""
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


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


def file_part(text: str) -> str:
    """Return text as a safe part of a file's name; of an address without its scheme."""
    scheme, _, rest = str(text).rpartition("://")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", rest if scheme else str(text))[:80] or "_"


def job_words(job: Any) -> str:
    """Write the variables that name a process's job; empty: it has none, or nothing tells."""
    if not isinstance(job, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in job.items())
