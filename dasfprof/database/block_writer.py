"""`BlockWriter`: encodes rows in slices, and appends a frame for each kind of event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dasfprof.database import frames, values
from dasfprof.database.block_codec import BlockEncoder, Rows
from dasfprof.database.compression import deflate
from dasfprof.database.losses import Losses, cause_of
from dasfprof.schema.events import Schema

# --- `Source`: a list to which recorders append, and the function that turns it into events -------

#: Result of `fold`: rows of schemas, each with their positions among all rows of the result.
Folded = Iterable[tuple[Schema, Rows, Sequence[int]]]


class Source:
    """A list of recorded facts, and how they become events.

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
        #: Recorders append rows here, from any thread, or extend it by complete facts.
        self.rows: list[Any] = []
        #: Number of facts taken from `rows` that are not yet in the file.
        self.in_flight = 0
        #: Length of `rows` at which the writer must be woken, or 0 after closing.
        self.wake_at = 0
        self.width = width
        self.fold = fold
        self.constants = constants
        self.finish = finish

    @property
    def pending(self) -> int:
        """Number of complete facts in `rows`."""
        return len(self.rows) // self.width

    def pop(self, facts: int) -> list[Any]:
        """Remove the oldest facts from `rows` and return them. They count as `in_flight`."""
        self.in_flight = facts
        popped = self.rows[: facts * self.width]
        del self.rows[: len(popped)]
        return popped

    def withdraw(self, row: Any) -> bool:
        """Remove a row if it is still in `rows`, and return whether it was."""
        for position in reversed(range(len(self.rows))):
            if self.rows[position] is row:
                del self.rows[position]
                return True
        return False

    @classmethod
    def from_schema(cls, schema: Schema, constants: dict[str, Any] | None = None) -> Source:
        """Return a source whose rows are rows of one schema."""
        return cls(lambda rows: [(schema, rows, range(len(rows)))], constants)


#: Number of rows that are encoded at a time, column by column, with pauses in between. The fixed
#: cost of a column is half of the total for 250 rows, and a tenth for this number. `benchmarks/`
#: measures the cost and how long an event loop waits.
SLICE_ROWS = 1000


def _from(first: int, positions: Sequence[int]) -> Sequence[int]:
    """Return the positions, each increased by `first`."""
    if isinstance(positions, range):
        return range(first + positions.start, first + positions.stop, positions.step)
    return [first + position for position in positions]


class BlockWriter:
    """Encodes rows and appends the blocks to a file.

    Counts what cannot be written. It must be used from a single thread.

    Parameters
    ----------
    append_frame
        Appends a frame to the file.
    losses
        Where dropped facts and errors are counted.
    pause
        Called between slices, to let other threads run.
    """

    def __init__(
        self, append_frame: Callable[[bytes], None], losses: Losses, pause: Callable[[], None]
    ) -> None:
        self._append_frame = append_frame
        self._losses = losses
        self._pause = pause
        #: Number of positions used so far, and number of appended rows.
        self.events = self.stored = 0

    def write(self, source: Source, rows: list[Any], *, finish: bool = False) -> None:
        """Fold, encode and append rows taken from a source."""
        blocks: dict[Schema, BlockEncoder] = {}
        step = SLICE_ROWS * source.width
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            self._encode(partial(source.fold, part), len(part) // source.width, source, blocks)
            self._pause()
        if finish:
            self._encode(source.finish, 0, source, blocks)
        for block in blocks.values():
            if block.rows:
                self._store(block)

    def append(self, frame: bytes) -> None:
        """Append a frame without events. An empty frame only writes the header of a new file."""
        try:
            self._append_frame(frame)
        except Exception as error:
            self._losses.warn("cannot write facts to", error)

    def frame(self, block: dict[str, Any]) -> bytes:
        """Return a frame with a map and the entries that every frame has."""
        return frames.build_frame(values.pack({**block, **self._common_entries()}))

    def _common_entries(self) -> dict[str, Any]:
        return {"clock": [time.time(), time.monotonic()], **self._losses.about()}

    def _encode(
        self,
        fold: Callable[[], Folded],
        count: int,
        source: Source,
        blocks: dict[Schema, BlockEncoder],
    ) -> None:
        """Fold and encode. An error must neither end the thread nor reach the user's code."""
        try:
            folded = [(schema, rows, positions) for schema, rows, positions in fold() if rows]
        except Exception as error:
            self.failed("recorder failed", count, error)
            return
        first = self.events
        for schema, rows, positions in folded:
            if schema not in blocks:
                blocks[schema] = BlockEncoder(schema, source.constants)
            for failure in blocks[schema].extend(rows, _from(first, positions), self._pause):
                self.failed("not encoded", 1, failure)
            self.events += len(rows)

    def _store(self, block: BlockEncoder) -> None:
        """Append a block, or count its rows as dropped."""
        try:
            payload = block.payload(self._pause, **self._common_entries())
            frame = frames.EventsFrame(frames.build_frame(deflate(payload)))
            frame.about = (block.schema.name, *block.span)
            frame.rows = block.rows
        except Exception as error:
            self.failed("recorder failed", block.rows, error)
            return
        try:
            self._append_frame(frame)
        except Exception as error:
            self._losses.add(cause_of(error), block.rows)
            self._losses.warn("cannot write facts to", error)
        else:
            self.stored += block.rows

    def failed(self, cause: str, count: int, error: Exception) -> None:
        """Count facts that were lost because of an error before writing, by cause."""
        self._losses.add("no memory" if isinstance(error, MemoryError) else cause, count)
        self._losses.errors += 1
        self._losses.warn("cannot encode facts for", error, trace=True)
