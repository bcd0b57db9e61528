"""`BlockWriter`: encodes rows in slices, and appends one frame per kind of event to a file."""

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

# --- `Source`: a list of recorded facts, and the function that turns the facts into events --------

#: Result of `Source.fold`: for each schema, the rows and their positions among all rows of the
#: result.
Folded = Iterable[tuple[Schema, Rows, Sequence[int]]]


class Source:
    """A list to which recorders append facts, with a function that turns the facts into events.

    Parameters
    ----------
    fold
        A function that turns a slice of `rows` into rows of schemas. The writer's thread calls it
        with consecutive slices.
    constants
        Fields with the same value in every event of this source.
    finish
        A function that is called once when the file is closed. It returns rows about work that has
        not ended, such as unfinished tasks.
    width
        Number of items in `rows` for each fact. If it is more than 1, recorders add a fact by
        `rows.extend(fact)`.
    """

    def __init__(
        self,
        fold: Callable[[list[Any]], Folded],
        constants: dict[str, Any] | None = None,
        finish: Callable[[], Folded] = tuple,
        width: int = 1,
    ) -> None:
        #: The facts that were not yet taken by the writer. Recorders add complete facts from any
        #: thread.
        self.rows: list[Any] = []
        #: Number of facts that the writer has removed from `rows` but not yet written to the file.
        self.in_flight = 0
        #: Length of `rows` from which a recorder must wake the writer. 0 after closing.
        self.wake_at = 0
        # Storing tuples instead would make the garbage collector run more often, and a full
        # collection takes tens to hundreds of milliseconds if much is recorded.
        self.width = width
        self.fold = fold
        self.constants = constants
        self.finish = finish

    @property
    def pending(self) -> int:
        """The number of complete facts in `rows`."""
        return len(self.rows) // self.width

    def pop(self, facts: int) -> list[Any]:
        """Remove the oldest facts from `rows` and return them."""
        self.in_flight = facts
        popped = self.rows[: facts * self.width]
        del self.rows[: len(popped)]
        return popped

    def withdraw(self, row: Any) -> bool:
        """Remove a row if `rows` still contains it, and return whether it did."""
        for position in reversed(range(len(self.rows))):
            if self.rows[position] is row:
                del self.rows[position]
                return True
        return False

    @classmethod
    def from_schema(cls, schema: Schema, constants: dict[str, Any] | None = None) -> Source:
        """Return a source for facts that are already rows of the given schema."""
        return cls(lambda rows: [(schema, rows, range(len(rows)))], constants)


#: Number of rows that are encoded together, column by column, with pauses between columns. With
#: 250 rows, the fixed cost per column would be half of the total cost. With this number, it is a
#: tenth. `benchmarks/` measures the cost, and how long an event loop waits.
SLICE_ROWS = 1000


def _from(first: int, positions: Sequence[int]) -> Sequence[int]:
    """Return the positions, each increased by `first`. A range remains a range."""
    if isinstance(positions, range):
        return range(first + positions.start, first + positions.stop, positions.step)
    return [first + position for position in positions]


class BlockWriter:
    """Encodes rows, appends the blocks to a file, and counts events that cannot be written.

    It must not be used from several threads at the same time.

    Parameters
    ----------
    append_frame
        A function that appends a frame to the file.
    losses
        Counts dropped events and errors.
    pause
        A function that is called between slices, to let other threads run.
    """

    def __init__(
        self, append_frame: Callable[[bytes], None], losses: Losses, pause: Callable[[], None]
    ) -> None:
        self._append_frame = append_frame
        self._losses = losses
        self._pause = pause
        #: Number of events that have got a position in the file so far (`events`), and number of
        #: events that were appended to the file (`stored`).
        self.events = self.stored = 0

    def write(self, source: Source, rows: list[Any], *, finish: bool = False) -> None:
        """Turn facts of a source into events, encode the events, and append them to the file.

        If `finish` is true, also append the rows that `source.finish` returns.
        """
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
        """Append a frame that contains no events. Errors are logged.

        If `frame` is empty, only the header of a new file is written.
        """
        try:
            self._append_frame(frame)
        except Exception as error:
            self._losses.warn("cannot write facts to", error)

    def frame(self, block: dict[str, Any]) -> bytes:
        """Return a frame with the entries of a map, the current time, and the losses so far."""
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
        """Turn `count` facts into events with `fold`, and encode the events into blocks.

        Errors are counted and not raised.
        """
        try:
            folded = [(schema, rows, positions) for schema, rows, positions in fold() if rows]
        except Exception as error:
            # An error must neither end the writer's thread nor reach the user's code.
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
        """Append a block to the file. If that fails, count the block's rows as dropped."""
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
        """Count events that could not be encoded because of an error.

        They are counted under `cause`, or under ``no memory`` if the error is a `MemoryError`.
        """
        self._losses.add("no memory" if isinstance(error, MemoryError) else cause, count)
        self._losses.errors += 1
        self._losses.warn("cannot encode facts for", error, trace=True)
