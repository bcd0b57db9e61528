"""`Source`: a list that recording appends to, and the function that turns it into events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dasfprof.database.block_codec import Rows
from dasfprof.schema.declaration import Schema

#: What `fold` returns: rows of schemas, with their positions among all rows that it returns.
Folded = Iterable[tuple[Schema, Rows, Sequence[int]]]


class Source:
    """A list of facts, and how they become events.

    Parameters
    ----------
    fold
        Called in the writer's thread with consecutive slices of `rows`; returns rows of schemas.
    constants
        Fields with the same value in every event of this source.
    finish
        Called once when the file is closed; returns rows of what has not ended.
    width
        Number of items of `rows` for each fact. If more than one, a fact is stored flat, by
        `rows.extend(fact)`: kept tuples would make the garbage collector run more often, and a full
        collection takes tens to hundreds of milliseconds where much is recorded.
    """

    def __init__(
        self,
        fold: Callable[[list[Any]], Folded],
        constants: dict[str, Any] | None = None,
        finish: Callable[[], Folded] = tuple,
        width: int = 1,
    ) -> None:
        #: Append rows here, from any thread, or extend it by whole facts.
        self.rows: list[Any] = []
        #: Facts taken from `rows` that are not yet in the file.
        self.in_flight = 0
        #: Length of `rows` at which user code calls `TraceWriter.make_room`; 0 after closing.
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
        """Return a source whose rows are rows of one schema."""
        return cls(lambda rows: [(schema, rows, range(len(rows)))], constants)
