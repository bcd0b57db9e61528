"""Notes of several kinds that lie flat in one list, and how columns are made of them.

A note is a run of items: its kind's name and then its facts, padded to one width for all kinds.
`Source.width` tells why they lie so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from dasfprof.database.batch import Columns, Schema
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard

#: Makes a schema's columns of the items of notes, column by column.
MakeColumns = Callable[..., list[list[Any]]]


class FlatNotes:
    """The kinds of notes of one plugin.

    Parameters
    ----------
    width
        Items of a note.
    guard
        Takes the errors that a note causes; the others are folded all the same.
    kinds
        By the name that notes of a kind begin with: the schema of their rows, and what makes its
        columns of as many lists as a note has facts; None where they are the columns.
    """

    def __init__(
        self, width: int, guard: HookGuard, kinds: dict[str, tuple[Schema, MakeColumns | None]]
    ) -> None:
        self._width = width
        self._guard = guard
        self._kinds = kinds

    def fold(self, notes: list[Any]) -> Folded:
        """Give the rows of these notes, schema by schema."""
        names = notes[:: self._width]
        first = 0
        for name, (schema, make_columns) in self._kinds.items():
            of_kind = notes if names.count(name) == len(names) else self._only(name, notes)
            if of_kind:
                columns = self._columns(of_kind, make_columns or _first(len(schema.codecs)))
                rows = Columns(columns) if columns else ()
                yield schema, rows, range(first, first + len(rows))
                first += len(rows)

    def _only(self, name: str, notes: list[Any]) -> list[Any]:
        places = range(0, len(notes), self._width)
        return list(
            chain.from_iterable(notes[at : at + self._width] for at in places if notes[at] == name)
        )

    def _columns(self, notes: list[Any], make_columns: MakeColumns) -> list[list[Any]]:
        """Make columns, leaving out the notes that it fails on; no column where none is left."""
        try:
            return make_columns(*(notes[item :: self._width] for item in range(1, self._width)))
        except Exception:
            if len(notes) <= self._width:
                self._guard.caught("folding a note")
                return []
        half = len(notes) // self._width // 2 * self._width
        first, second = (self._columns(part, make_columns) for part in (notes[:half], notes[half:]))
        if not (first and second):
            return first or second
        return [a + b for a, b in zip(first, second, strict=True)]


def _first(count: int) -> MakeColumns:
    return lambda *facts: list(facts[:count])


def padded(width: int, *items: Any) -> tuple[Any, ...]:
    """Make a note of fewer items than the longest kind has."""
    return items + (None,) * (width - len(items))
