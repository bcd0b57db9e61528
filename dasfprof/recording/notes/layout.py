"""Notes of several kinds, stored flat in one list, and their conversion into columns.

A note is its `NoteKind`, which marks its begin, then an item for each field of the kind, padded to
the width that all notes of a `NoteLayout` share. `Source.width` says why notes are stored flat. A
note of another width is lost: `fold` goes on at the next mark and counts what it could not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from dasfprof.database.block_codec import Columns
from dasfprof.database.writer import Folded
from dasfprof.recording.guard import HookGuard
from dasfprof.schema.declaration import Schema


class NoteKind:
    """One kind of note and its fields.

    Parameters
    ----------
    schema
        The schema of the rows that these notes become.
    fields
        The names of the items after the mark, in order. Default: the columns of the schema.
    """

    def __init__(self, schema: Schema, fields: Sequence[str] | None = None) -> None:
        self.schema = schema
        self.columns = tuple(name for name, _ in schema.fields + schema.args)
        self.fields = self.columns if fields is None else tuple(fields)
        if len(set(self.fields)) < len(self.fields):
            raise ValueError(f"{schema.name}: a field is declared twice among {self.fields}")
        self._padding: tuple[None, ...] = ()

    def __repr__(self) -> str:
        return f"<kind of note {self.schema.name!r}>"

    def pad_to(self, width: int) -> None:
        """Set the number of items of a note, including the mark."""
        self._padding = (None,) * (width - 1 - len(self.fields))

    def note(self, *facts: Any) -> tuple[Any, ...]:
        """Return a note.

        Raises
        ------
        TypeError
            If there are more or fewer facts than fields.
        """
        if len(facts) != len(self.fields):
            raise TypeError(f"{self!r} has {len(self.fields)} fields, got {len(facts)}: {facts!r}")
        return (self, *facts, *self._padding)


class NoteLayout:
    """The kinds of notes of one plugin, and the width that they share.

    Parameters
    ----------
    *kinds
        Each kind may be in one layout only.
    """

    def __init__(self, *kinds: NoteKind) -> None:
        self.kinds = kinds
        #: Number of items of a note, including its mark.
        self.width = 1 + max(len(kind.fields) for kind in kinds)
        for kind in kinds:
            kind.pad_to(self.width)


#: The items of notes of one kind: a list for each field, by the field's name.
Fields = dict[str, list[Any]]
#: Converts them into a schema's columns, by the column's name.
MakeColumns = Callable[[Fields], dict[str, Sequence[Any]]]


class FlatNotes:
    """Converts the notes of one plugin into rows.

    Parameters
    ----------
    layout
        The kinds of notes.
    guard
        Handles the errors that a note causes; the other notes are still converted.
    make_columns
        Functions for the kinds whose fields are not the columns of their schema.
    """

    def __init__(
        self,
        layout: NoteLayout,
        guard: HookGuard,
        make_columns: dict[NoteKind, MakeColumns] | None = None,
    ) -> None:
        self._layout = layout
        self._guard = guard
        self._make_columns = make_columns or {}
        #: The first part of a note that was cut, because one before it had another width.
        self._rest: list[Any] = []

    def fold(self, notes: list[Any]) -> Folded:
        """Return the rows of notes, schema by schema, with their positions among all notes."""
        width = self._layout.width
        marks = notes[::width]
        counts = self._counts(marks)
        if self._rest or sum(counts) < len(marks) or len(notes) % width:
            notes = self._resynchronised(notes)
            marks = notes[::width]
            counts = self._counts(marks)
        for kind, count in zip(self._layout.kinds, counts, strict=True):
            if not count:
                continue
            places: Sequence[int] = range(len(marks))
            if count < len(marks):
                places = [place for place in places if marks[place] is kind]
            columns = self._columns(kind, self._at(places, notes))
            rows = Columns(columns) if columns else ()
            yield kind.schema, rows, places[: len(rows)]

    def _counts(self, marks: list[Any]) -> list[int]:
        """Return how many notes of each kind there are."""
        counts, left = [], len(marks)
        for kind in self._layout.kinds:
            counts.append(marks.count(kind) if left else 0)
            left -= counts[-1]
        return counts

    def finish(self, left: list[Any]) -> Folded:
        """Count as lost what remains when the file is closed: parts of a note.

        Parameters
        ----------
        left
            Items that were not converted.
        """
        if self._rest or left:
            self._lost((self._rest + left)[0], len(self._rest) + len(left))
        return ()

    def _resynchronised(self, notes: list[Any]) -> list[Any]:
        """Return the notes of the right width; count the others and stray items."""
        notes, self._rest = self._rest + notes, []
        width, kinds = self._layout.width, self._layout.kinds
        begins = [at for at, item in enumerate(notes) if type(item) is NoteKind]
        if not begins or begins[0]:
            begins.insert(0, 0)
        good: list[Any] = []
        for begin, end in zip(begins, [*begins[1:], len(notes)], strict=True):
            if end == len(notes) and end - begin < width:
                self._rest = notes[begin:end]  # the next notes may hold what is missing
            elif end - begin == width and any(notes[begin] is kind for kind in kinds):
                good += notes[begin:end]
            else:
                self._lost(notes[begin], end - begin)
        return good

    def _lost(self, mark: Any, items: int) -> None:
        """Count notes that cannot be read, estimated by their number of items."""
        for _ in range(max(1, round(items / self._layout.width))):
            try:
                kind = repr(mark) if type(mark) is NoteKind else "items without a mark"
                raise TypeError(
                    f"{kind}: {items} items, where each note of {self._layout.kinds} has "
                    f"{self._layout.width}"
                )
            except TypeError:
                self._guard.caught("folding a note")

    def _at(self, places: Sequence[int], notes: list[Any]) -> list[Any]:
        width = self._layout.width
        if len(places) * width == len(notes):
            return notes
        starts = (place * width for place in places)
        return list(chain.from_iterable(notes[at : at + width] for at in starts))

    def _columns(self, kind: NoteKind, notes: list[Any]) -> list[Sequence[Any]]:
        """Convert notes of one kind into columns; leave out those that fail."""
        width = self._layout.width
        try:
            fields = {name: notes[at::width] for at, name in enumerate(kind.fields, 1)}
            make = self._make_columns.get(kind)
            made = fields if make is None else make(fields)
            return [made[name] for name in kind.columns]
        except Exception:
            if len(notes) <= width:
                self._guard.caught("folding a note")
                return []
        half = len(notes) // width // 2 * width
        first, second = self._columns(kind, notes[:half]), self._columns(kind, notes[half:])
        if not (first and second):
            return first or second
        return [[*a, *b] for a, b in zip(first, second, strict=True)]


def discard(note: tuple[Any, ...]) -> None:
    """Stand in for the list of notes while there is no file."""


# --- Rows of several schemas in one list, each with its schema, for where rows are few ------------

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
