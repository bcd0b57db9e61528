"""Text for people: what a trace holds as one line that commands nothing, sizes, and tables in HTML.

Names of files, workers and tasks come from whoever wrote the trace. A terminal or a notebook shows
them, and obeys none of them.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database.reader import TraceFile

#: Files of a run that a notebook lists.
_MOST_FILES = 20
_LONGEST = 200


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


def table_html(caption: str, labels: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lay out a small table for a notebook; long text is cut."""
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell)[:_LONGEST])}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return (
        f"<div><p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def files_html(caption: str, paths: Sequence[Path]) -> str:
    """List trace files, by their headers alone: whose they are, and how large."""
    if len(paths) > _MOST_FILES:
        caption = f"{caption}; the first {_MOST_FILES} files:"
    labels = ("Plugin", "Host", "Worker", "Size", "File")
    return table_html(caption, labels, [_file_row(path) for path in paths[:_MOST_FILES]])


def _file_row(path: Path) -> tuple[object, ...]:
    """Tell of one file; of one that is gone or damaged, what is wrong with it."""
    try:
        header: dict[str, Any] = TraceFile(path).read_header()
        worker = header.get("worker")
        name = worker.get("name", "") if isinstance(worker, dict) else ""
        size = format_size(path.stat().st_size)
    except Exception as error:
        return "", "", "", f"cannot be read: {type(error).__name__}", path.name
    return header.get("plugin", ""), header.get("host", ""), name, size, path.name
