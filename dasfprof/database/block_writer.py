"""`BlockWriter`: folds and encodes rows in slices and appends a frame for each kind of event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.block_codec import BlockEncoder, Rows
from dasfprof.database.frames import deflate
from dasfprof.database.handover import GivenUpError
from dasfprof.database.losses import Cause, Losses, cause_of, is_full
from dasfprof.schema.events import Schema

# --- `Source`: a list that recording appends to, and the function that turns it into events -------

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
        #: Length of `rows` at which its writer wants to be called; 0 after closing.
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


#: Rows encoded at a time, column by column, with rests in between: what a column costs whatever
#: its length is half of all with 250 rows, and a tenth with these. `benchmarks/` measures the cost
#: and how long an event loop waits.
SLICE_ROWS = 1000

#: Rows, with their positions among all events of the file.
_Part = tuple[Rows, Sequence[int]]


class _Block:
    """Rows of one schema and their encoder; the rows are kept, as a full disk may split them."""

    def __init__(self, schema: Schema, constants: dict[str, Any] | None) -> None:
        self.encoder = BlockEncoder(schema, constants)
        self._constants = constants
        self.parts: list[_Part] = []

    def extend(
        self, rows: Rows, sequence: Sequence[int], rest: Callable[[], None]
    ) -> list[Exception]:
        self.parts.append((rows, sequence))
        return self.encoder.extend(rows, sequence, rest)

    def halves(self, rest: Callable[[], None]) -> tuple[_Block, _Block]:
        """Return two blocks, of the first and of the second half of the rows."""
        middle = sum(len(rows) for rows, _ in self.parts) // 2
        schema = self.encoder.schema
        halves = _Block(schema, self._constants), _Block(schema, self._constants)
        position = 0
        for rows, sequence in self.parts:
            cut = min(max(middle - position, 0), len(rows))
            position += len(rows)
            for half, place in zip(halves, (slice(cut), slice(cut, None)), strict=True):
                if sequence[place]:
                    half.extend(rows[place], sequence[place], rest)
        return halves


def _from(first: int, positions: Sequence[int]) -> Sequence[int]:
    """Return positions that count from another place."""
    if isinstance(positions, range):
        return range(first + positions.start, first + positions.stop, positions.step)
    return [first + place for place in positions]


class BlockWriter:
    """Encodes rows and appends the blocks to a file; counts what cannot be written.

    Not safe to use from two threads.

    Parameters
    ----------
    put
        Appends a frame to the file; the second argument is its number of events.
    losses
        Where dropped facts and errors are counted.
    rest
        Called between slices, to let other threads run.
    """

    def __init__(
        self, put: Callable[[bytes, int], None], losses: Losses, rest: Callable[[], None]
    ) -> None:
        self._put = put
        self._losses = losses
        self._rest = rest
        #: Positions used so far, and rows that were appended.
        self.events = self.stored = 0
        # Not even one row could be written: later blocks are not split again.
        self._full = False

    def write(self, source: Source, rows: list[Any], *, finish: bool = False) -> None:
        """Fold, encode and append rows taken from a source."""
        blocks: dict[Schema, _Block] = {}
        step = SLICE_ROWS * source.width
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            self._encode(partial(source.fold, part), len(part) // source.width, source, blocks)
            self._rest()
        if finish:
            self._encode(source.finish, 0, source, blocks)
        for block in blocks.values():
            if block.encoder.rows:
                self._store(block)

    def append(self, frame: bytes) -> None:
        """Append a frame without events; an empty frame appends the header of a new file only."""
        failure = self._append(frame, 0)
        if failure is not None:
            self._losses.warn("cannot write facts to", failure)

    def frame(self, block: dict[str, Any]) -> bytes:
        """Build a frame from a map and the entries that every frame has."""
        return frames.build_frame(values.pack({**block, **self._about()}))

    def _about(self) -> dict[str, Any]:
        return {"clock": [time.time(), time.monotonic()], **self._losses.about()}

    def _encode(
        self,
        fold: Callable[[], Folded],
        count: int,
        source: Source,
        blocks: dict[Schema, _Block],
    ) -> None:
        """Fold and encode; an error must neither end the thread nor reach the user's code."""
        try:
            folded = [(schema, rows, positions) for schema, rows, positions in fold() if rows]
        except Exception as error:
            self.failed("recorder failed", count, error)
            return
        first = self.events
        for schema, rows, positions in folded:
            if schema not in blocks:
                blocks[schema] = _Block(schema, source.constants)
            for reason in blocks[schema].extend(rows, _from(first, positions), self._rest):
                self.failed("not encoded", 1, reason)
            self.events += len(rows)

    def _store(self, block: _Block) -> bool:
        """Append a block, or as many of its first rows as the disk has room for."""
        encoder = block.encoder
        try:
            payload = encoder.payload(self._rest, **self._about())
            frame = frames.EventsFrame(frames.build_frame(deflate(payload)))
            frame.about = (encoder.schema.name, *encoder.span)
            frame.rows = encoder.rows
        except Exception as error:
            self.failed("recorder failed", encoder.rows, error)
            return True
        failure = self._append(frame, encoder.rows)
        if failure is None:
            self._full = False
            self.stored += encoder.rows
            return True
        if is_full(failure) and encoder.rows > 1 and not self._full:
            first, second = block.halves(self._rest)
            if self._store(first):
                return self._store(second)
            self._drop(second.encoder.rows, failure)
            return False
        self._full = is_full(failure)
        self._drop(encoder.rows, failure)
        return False

    def _append(self, frame: bytes, rows: int) -> Exception | None:
        """Append a frame; return the error if it could not be written."""
        try:
            self._put(frame, rows)
        except Exception as error:
            return error
        return None

    def _drop(self, count: int, error: Exception) -> None:
        if not isinstance(error, GivenUpError):
            self._losses.add(cause_of(error), count)
        self._losses.warn("cannot write facts to", error)

    def failed(self, cause: Cause, count: int, error: Exception) -> None:
        """Count facts that an error before they were written lost, by its cause."""
        self._losses.add("no memory" if isinstance(error, MemoryError) else cause, count)
        self._losses.errors += 1
        self._losses.warn("cannot encode facts for", error, trace=True)
