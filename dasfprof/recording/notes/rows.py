"""Rows of several schemas in one list, each with its schema, for where rows are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dasfprof.database.writer import Folded
from dasfprof.schema.declaration import Schema

#: A row and its schema.
SchemaRow = tuple[Schema, tuple[Any, ...]]


def fold_rows(rows: Sequence[SchemaRow]) -> Folded:
    """Return rows by schema, each with its position among all of them."""
    by_schema: dict[Schema, tuple[list[tuple[Any, ...]], list[int]]] = {}
    for position, (schema, row) in enumerate(rows):
        kept, positions = by_schema.setdefault(schema, ([], []))
        kept.append(row)
        positions.append(position)
    return [(schema, kept, positions) for schema, (kept, positions) in by_schema.items()]
