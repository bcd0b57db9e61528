"""How the Parquet files are described: tables, columns, their types and meanings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dasfprof.schema.declaration import EventKind

#: What a column of each kind holds, in words.
KINDS = {
    "id": "whole number",
    "count": "whole number",
    "bytes": "whole number of bytes",
    "seconds": "floating-point seconds",
    "number": "floating point",
    "time": "timestamp in microseconds, UTC",
    "text": "text",
    "key": "text",
    "stimulus": "text",
    "flag": "boolean",
    "ids": "list of whole numbers",
}


@dataclass(frozen=True)
class Column:
    """A column of a file."""

    name: str
    #: One of `KINDS`.
    kind: str
    about: str


@dataclass(frozen=True)
class TableSchema:
    """A file, named as its table."""

    name: str
    about: str
    columns: tuple[Column, ...]


def columns(text: str) -> tuple[Column, ...]:
    """Declare columns that the analysis makes: a line each, a name, a kind and what it is."""
    lines = (line.split(None, 2) for line in text.splitlines() if line)
    return tuple(Column(*words) for words in lines)


def recorded(
    event: EventKind, *, without: Collection[str] = (), renamed: Mapping[str, str] | None = None
) -> tuple[Column, ...]:
    """Return the columns of what was recorded, described as where they are declared.

    Parameters
    ----------
    event
        The event kind.
    without
        Names of columns to leave out.
    renamed
        Names in the table, by the names in the event.
    """
    names = renamed or {}
    return tuple(
        Column(names.get(column.name, column.name), _KIND_OF.get(column.kind, column.kind), about)
        for column in event.columns
        if column.in_tables and column.name not in without
        for about in [column.about]
    )


#: What objects and lists of keys are in a file.
_KIND_OF: dict[str, str] = {"object": "text", "keys": "ids"}
