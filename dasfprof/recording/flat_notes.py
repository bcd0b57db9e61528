"""Notes of several kinds that lie flat in one list, and how columns are made of them.

A note is a run of items: its kind's name and then its facts, padded to one width for all kinds.
`Source.width` tells why they lie so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from dasfprof.database.batch import Columns
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.declaration import Schema

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
        """Give the rows of these notes, schema by schema, with their places among all of them."""
        names = notes[:: self._width]
        for name, (schema, make_columns) in self._kinds.items():
            count = names.count(name)
            if not count:
                continue
            places: Sequence[int] = range(len(names))
            if count < len(names):
                places = [place for place in places if names[place] == name]
            columns = self._columns(self._at(places, notes), make_columns or _plain(schema))
            rows = Columns(columns) if columns else ()
            yield schema, rows, places[: len(rows)]

    def _at(self, places: Sequence[int], notes: list[Any]) -> list[Any]:
        if len(places) * self._width == len(notes):
            return notes
        starts = (place * self._width for place in places)
        return list(chain.from_iterable(notes[at : at + self._width] for at in starts))

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


def _plain(schema: Schema) -> MakeColumns:
    return lambda *facts: list(facts[: len(schema.codecs)])


def padded(width: int, *items: Any) -> tuple[Any, ...]:
    """Make a note of fewer items than the longest kind has."""
    return items + (None,) * (width - len(items))
