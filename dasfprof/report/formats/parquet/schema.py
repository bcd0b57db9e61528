"""How the Parquet files are described: tables, columns, their types and meanings."""

from __future__ import annotations

from dataclasses import dataclass

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


def table(name: str, about: str, columns: str) -> TableSchema:
    """Make a schema; each line of `columns` is a name, a kind and what it is."""
    lines = [line.split(None, 2) for line in columns.splitlines() if line]
    return TableSchema(name, about, tuple(Column(*words) for words in lines))


#: The columns that tell whose a fact is.
WHO = """
worker_id             id       row of workers, from 0
host                  text     host of the worker
worker                text     label of the worker
"""
