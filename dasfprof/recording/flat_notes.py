"""Notes of several kinds that lie flat in one list, and how rows are made of them.

A note is a run of items: its kind's name and then its facts, padded to one width for all kinds.
`Source.width` tells why they lie so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from dasfprof.database.batch import Schema
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard

Rows = list[tuple[Any, ...]]


class FlatNotes:
    """The kinds of notes of one plugin.

    Parameters
    ----------
    width
        Items of a note.
    guard
        Takes the errors that a note causes; the others are folded all the same.
    kinds
        By the name that notes of a kind begin with: the schema of their rows, and what makes the
        rows of the items of such notes; None where the facts are the schema's columns.
    """

    def __init__(
        self,
        width: int,
        guard: HookGuard,
        kinds: dict[str, tuple[Schema, Callable[[list[Any]], Rows] | None]],
    ) -> None:
        self._width = width
        self._guard = guard
        self._kinds = kinds

    def fold(self, notes: list[Any]) -> Folded:
        """Give the rows of these notes, schema by schema."""
        names = notes[:: self._width]
        first = 0
        for name, (schema, make_rows) in self._kinds.items():
            of_kind = notes if names.count(name) == len(names) else self._only(name, notes)
            if of_kind:
                rows = self._rows(of_kind, make_rows or self._plain(schema))
                yield schema, rows, range(first, first + len(rows))
                first += len(rows)

    def _only(self, name: str, notes: list[Any]) -> list[Any]:
        places = range(0, len(notes), self._width)
        return list(
            chain.from_iterable(notes[at : at + self._width] for at in places if notes[at] == name)
        )

    def _plain(self, schema: Schema) -> Callable[[list[Any]], Rows]:
        items = range(1, 1 + len(schema.codecs))
        return lambda notes: list(zip(*(notes[i :: self._width] for i in items), strict=True))

    def _rows(self, notes: list[Any], make_rows: Callable[[list[Any]], Rows]) -> Rows:
        """Make rows, leaving out the notes that it fails on."""
        try:
            return make_rows(notes)
        except Exception:
            if len(notes) <= self._width:
                self._guard.caught("folding a note")
                return []
        half = len(notes) // self._width // 2 * self._width
        return self._rows(notes[:half], make_rows) + self._rows(notes[half:], make_rows)


def padded(width: int, *items: Any) -> tuple[Any, ...]:
    """Make a note of fewer items than the longest kind has."""
    return items + (None,) * (width - len(items))
