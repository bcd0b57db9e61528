"""Trace files as an HTML table for a notebook.

Names of files, workers and tasks come from whoever wrote the trace, so all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dasfprof.database.reader import TraceFile, is_dasf_trace
from dasfprof.errors import NotATraceError
from dasfprof.text import escape, format_size

#: Files of a run that a notebook lists.
_MOST_FILES = 20
_LONGEST = 200


def table_html(caption: str, labels: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table; long text is cut."""
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
    """Return a table of trace files with their owners and sizes; reads the headers only."""
    if len(paths) > _MOST_FILES:
        caption = f"{caption}; the first {_MOST_FILES} files:"
    labels = ("Plugin", "Host", "Worker", "Size", "File")
    return table_html(caption, labels, [_file_row(path) for path in paths[:_MOST_FILES]])


def _file_row(path: Path) -> tuple[object, ...]:
    """Return the cells of one file, or why it cannot be read."""
    try:
        header = _header(path)
        worker = header.get("worker")
        name = worker.get("name", "") if isinstance(worker, dict) else ""
        size = format_size(path.stat().st_size)
    except Exception as error:
        return "", "", "", f"cannot be read: {type(error).__name__}", path.name
    return header.get("plugin", ""), header.get("host", ""), name, size, path.name


def _header(path: Path) -> dict[str, Any]:
    try:
        return TraceFile(path).read_header()
    except NotATraceError:
        if not is_dasf_trace(path):
            raise
        return {"plugin": "DASF"}
