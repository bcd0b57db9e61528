"""Sources: the lists that recording appends to, and how what is in them becomes events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dasfprof.database.batch import Rows
from dasfprof.schema.declaration import Schema

#: What a fold gives: rows of a schema, with their positions among all rows that it gives.
Folded = Iterable[tuple[Schema, Rows, Sequence[int]]]


class Source:
    """A list that one kind of fact is appended to, and how its rows become events.

    Parameters
    ----------
    fold
        Called in the writer's thread with consecutive slices of `rows`; gives rows of schemas.
    constants
        Fields that are the same in every event of this source.
    finish
        Called once when the file is closed: the rows of what is still unfinished.
    width
        Items of `rows` that make one fact. With more than one, facts lie flat in it, one after the
        other: `rows.extend(fact)` keeps no tuple. Of objects that the garbage collector has to
        follow, those that are kept bring on its next run, and a full run takes tens to hundreds of
        milliseconds where much is recorded.
    """

    def __init__(
        self,
        fold: Callable[[list[Any]], Folded],
        constants: dict[str, Any] | None = None,
        finish: Callable[[], Folded] = tuple,
        width: int = 1,
    ) -> None:
        #: Append here, from any thread, or extend by whole facts.
        self.rows: list[Any] = []
        #: Facts that were taken out of `rows` and are not yet in the file.
        self.in_flight = 0
        #: Rows at which user code that records makes room (`TraceWriter.make_room`); 0 after
        #: closing.
        self.wake_at = 0
        self.width = width
        self.fold = fold
        self.constants = constants
        self.finish = finish

    @property
    def pending(self) -> int:
        """Whole facts in `rows`."""
        return len(self.rows) // self.width

    def take(self, facts: int) -> list[Any]:
        """Take the oldest facts out of `rows`; they count as `in_flight`."""
        self.in_flight = facts
        taken = self.rows[: facts * self.width]
        del self.rows[: len(taken)]
        return taken

    def withdraw(self, row: Any) -> bool:
        """Remove a row if it is still in `rows`; return whether it was."""
        for place in reversed(range(len(self.rows))):
            if self.rows[place] is row:
                del self.rows[place]
                return True
        return False

    @classmethod
    def of(cls, schema: Schema, constants: dict[str, Any] | None = None) -> Source:
        """Make a source whose rows are already those of one schema."""
        return cls(lambda rows: [(schema, rows, range(len(rows)))], constants)
