"""Schemas of the Parquet files (`SCHEMAS`). They are read from the text in ``PARQUET.md``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Description of each kind of column, as in ``PARQUET.md``.
KINDS = {
    "id": "whole number from 0",
    "count": "whole number",
    "bytes": "whole number of bytes",
    "seconds": "floating-point seconds",
    "number": "floating point",
    "time": "timestamp in microseconds, UTC",
    "text": "text",
    "key": "text of a key",
    "stimulus": "text of a stimulus id",
    "flag": "boolean",
    "ids": "list of whole numbers",
}
PAGE = Path(__file__).with_name("PARQUET.md")


@dataclass(frozen=True)
class ParquetColumn:
    """A column of a Parquet file."""

    name: str
    #: One of `KINDS`.
    kind: str
    about: str


@dataclass(frozen=True)
class TableSchema:
    """The schema of a Parquet file. `name` is the name of the file and of the table in it."""

    name: str
    about: str
    columns: tuple[ParquetColumn, ...]


def _declared() -> Iterator[TableSchema]:
    """Yield the schemas in ``PARQUET.md``, which has a section per table and a line per column."""
    kinds = {words: kind for kind, words in KINDS.items()}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        name, about, *_ = filter(None, section.splitlines())
        rows = [line[2:-2].split(" | ") for line in section.splitlines() if line[:3] == "| `"]
        columns = (ParquetColumn(cell[0].strip("`"), kinds[cell[1]], cell[2]) for cell in rows)
        yield TableSchema(name, about, tuple(columns))


SCHEMAS = tuple(_declared())
