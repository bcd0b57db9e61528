"""Blocks: events of one kind as columns, which are encoded and decoded.

A block is the payload of a frame. A `Schema` declares the columns of a kind of event. A row of a
schema is a tuple with one value per column, in the order of the columns. A `BlockEncoder` turns
rows into a block, and `decode_block` turns a block into a `Batch`. `infer_schema` creates a schema
for events of user code. A `BlockWriter` encodes the facts of a `Source` in slices, and appends one
frame per kind of event to a file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from dasfprof.database import columns, frames, values
from dasfprof.database.columns import encode_numbers
from dasfprof.database.frames import deflate
from dasfprof.database.losses import Losses, cause_of
from dasfprof.database.output import BlockFacts, TraceOutput
from dasfprof.database.values import number_array
from dasfprof.schema.events import EVENT_CLASSES, Event, Schema


class Columns:
    """Rows of a schema, stored as one sequence per column, all of the same length."""

    def __init__(self, columns: Sequence[Sequence[Any]]) -> None:
        # If each row were a tuple, the garbage collector would have to track all of these tuples.
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: slice) -> Columns:
        return Columns([column[rows] for column in self.columns])


Rows = Sequence[tuple[Any, ...]] | Columns


#: Maximum number of values per byte of a payload. A payload with more values per byte, which is
#: possible if rows are equal, is padded. Therefore a reader can reject absurd row counts.
VALUES_PER_BYTE = 2


class BlockEncoder:
    """Collects and encodes the rows of one block, slice by slice.

    Parameters
    ----------
    constants
        Further fields with the same value in every row, such as the host and the worker.
    """

    def __init__(self, schema: Schema, constants: dict[str, Any] | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._constants = constants or {}
        self._sequence: list[int] = []
        self._encoders = [columns.CODECS[codec]() for codec in schema.codecs]
        #: Start of the first event and end of the last event (Unix seconds). As long as there is no
        #: event with a valid time, the start is later than the end.
        self.span = (np.inf, -np.inf)
        names = [name for name, _ in schema.fields]
        self._times = [names.index(name) for name in ("timestamp", "duration") if name in names]

    def extend(
        self, rows: Rows, sequence: Sequence[int], pause: Callable[[], None] = lambda: None
    ) -> list[Exception]:
        """Add rows, and return the errors of rows that could not be added.

        `sequence` contains the position of each row among all events of the file. `pause` is called
        after each column, to let other threads run.
        """
        converted = []
        try:
            columns = rows.columns if isinstance(rows, Columns) else zip(*rows, strict=True)
            for encoder, items in zip(self._encoders, columns, strict=True):
                converted.append(encoder.convert(items))
                pause()
        except Exception as error:
            # The codec of a column cannot represent a value. Halve the rows until only this row is
            # left out.
            if len(rows) == 1:
                return [error]
            half = len(rows) // 2
            errors = self.extend(rows[:half], sequence[:half], pause)
            return errors + self.extend(rows[half:], sequence[half:], pause)
        for encoder, column in zip(self._encoders, converted, strict=True):
            encoder.add(column)
        self._widen_span(converted)
        self._sequence += sequence
        self.rows += len(rows)
        return []

    def _widen_span(self, converted: list[Any]) -> None:
        times = [converted[position] for position in self._times]
        if len(times[0]) and all(
            isinstance(column, np.ndarray) and column.dtype.kind == "f" for column in times
        ):
            with np.errstate(over="ignore"):
                ends = np.fmax(times[0], sum(times))
            first, last = float(np.fmin.reduce(times[0])), float(np.fmax.reduce(ends))
        else:  # User code may have recorded any values.
            first, last = -np.inf, np.inf
        self.span = (min(self.span[0], first), max(self.span[1], last))

    def payload(self, pause: Callable[[], None] = lambda: None, **about: Any) -> bytes:
        """Return the payload of the block.

        `pause` is called after each column, to let other threads run. `about` has further entries
        of the block's map (FORMAT.md).
        """
        encoded = []
        for encoder in self._encoders:
            encoded.append(encoder.finish())
            pause()
        names = [name for name, _ in self.schema.fields]
        fields: dict[str, Any] = dict(zip(names, encoded, strict=False))
        for name, value in self._constants.items():
            fields[name] = [columns.DICTIONARY, [columns.CONSTANT, 0], [value]]
        args = zip((name for name, _ in self.schema.args), encoded[len(names) :], strict=True)
        block = {
            "kind": "events",
            "phase": self.schema.phase,
            "name": self.schema.name,
            "rows": self.rows,
            **about,
            "sequence": encode_numbers(number_array(self._sequence, "<i8")),
            "fields": fields,
            "args": dict(args),
        }
        packed = values.pack(block)
        cells = self.rows * (1 + len(fields) + len(self.schema.args))
        cells += sum(encoder.items for encoder in self._encoders)
        missing = -(-cells // VALUES_PER_BYTE) - len(packed)
        return packed if missing <= 0 else values.pack({**block, "padding": bytes(missing)})


@dataclass(frozen=True)
class Batch:
    """Events of one type, such as instants, stored as columns."""

    phase: str
    #: The common name of all events, or empty if their names differ. In that case, the batch has a
    #: field ``name``.
    name: str
    rows: int
    #: Position of each event among all events of the file, shape (rows,).
    sequence: columns.Array
    fields: dict[str, columns.Column]
    args: dict[str, columns.Column] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The name of each event."""
        names = self.fields.get("name")
        return [self.name] * self.rows if names is None else names.to_list()

    def take(self, rows: columns.Array) -> Batch:
        """Return a batch with the events at the given indices."""
        return replace(
            self,
            rows=len(rows),
            sequence=self.sequence[rows],
            fields={name: column.take(rows) for name, column in self.fields.items()},
            args={name: column.take(rows) for name, column in self.args.items()},
        )

    def events(self) -> list[tuple[int, Event]]:
        """Return the events as objects, each with its position in the file."""
        make = EVENT_CLASSES[self.phase]
        fields = {name: column.to_list() for name, column in self.fields.items()}
        fields["name"] = self.names
        args = {name: column.to_list() for name, column in self.args.items()}
        args_of_rows = _row_dicts(args) if args else ({} for _ in range(self.rows))
        return [
            (position, make(**row, args=row_args))
            for position, row, row_args in zip(
                self.sequence.tolist(), _row_dicts(fields), args_of_rows, strict=True
            )
        ]


def _row_dicts(columns: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def decode_block(block: dict[str, Any], limit: int) -> Batch:
    """Decode the map that a payload contains, or raise `CorruptBlockError` if it breaks FORMAT.md.

    `limit` is the length of the payload in bytes. It limits the number of values that the block may
    claim to contain.
    """
    try:
        rows, phase, name = block["rows"], block["phase"], block["name"]
        fields, args, sequence = block["fields"], block["args"], block["sequence"]
        valid = {"name", "phase", *EVENT_CLASSES[phase].FIELDS}
    except (KeyError, TypeError) as error:
        raise columns.CorruptBlockError(f"a block without a valid {error}") from error
    if not (isinstance(name, str) and isinstance(fields, dict) and isinstance(args, dict)):
        raise columns.CorruptBlockError("a block whose name, fields or args are of a wrong type")
    limit_of_items = VALUES_PER_BYTE * limit
    if type(rows) is not int or not 0 <= rows * (1 + len(fields) + len(args)) <= limit_of_items:
        raise columns.CorruptBlockError(f"a block of {limit} bytes claims {rows!r} rows")
    limit_of_items -= rows * (1 + len(fields) + len(args))
    needed = valid & {"timestamp", "duration"}
    if not needed <= fields.keys():
        raise columns.CorruptBlockError(f"a block without {', '.join(needed - fields.keys())}")
    positions = columns.decode(sequence, rows, 0)
    if not isinstance(positions, columns.NumberColumn) or positions.array.dtype.kind not in "ui":
        raise columns.CorruptBlockError("a sequence that is not of integers")
    decoded: tuple[dict[str, columns.Column], dict[str, columns.Column]] = {}, {}
    known = {key: encoded for key, encoded in fields.items() if key in valid}
    for part, encoded_columns in zip(decoded, (known, args), strict=True):
        for key, encoded in encoded_columns.items():
            column = part[key] = columns.decode(encoded, rows, limit_of_items)
            if isinstance(column, columns.ListColumn):
                limit_of_items -= len(column.inner)
    names = decoded[0].get("name")
    if names is not None and not (
        isinstance(names, columns.DictionaryColumn)
        and all(isinstance(entry, str) for entry in names.entries)
    ):
        raise columns.CorruptBlockError("names that are not texts")
    return Batch(phase, name, rows, positions.array, *decoded)


_CHUNK = 5_000
#: Minimum number of events with the same name for a separate schema. Names with fewer events share
#: a schema, because each schema results in a frame, and a frame costs as much as 100 events.
_FEW = 4

_name, _phase, _args = map(attrgetter, ("name", "phase", "args"))


def fold_events(
    events: Sequence[Event], *, share: bool = True
) -> Iterator[tuple[Schema, Columns, Sequence[int]]]:
    """Group events by schema. Yield each schema with its rows and the rows' positions in `events`.

    If `share` is true, names with few events may share a schema.
    """
    names_of_args = map(tuple, map(_args, events))
    traits = (map(type, events), map(_name, events), map(_phase, events), names_of_args)
    if all(len(set(trait)) == 1 for trait in traits):  # One schema is enough, as for most loops.
        schema, rows = infer_schema(events)
        yield schema, rows, range(len(events))
        return
    alike: dict[tuple[Any, ...], list[int]] = {}
    for position, event in enumerate(events):
        key = type(event), event.name, event.phase, tuple(event.args)
        alike.setdefault(key, []).append(position)
    groups = _share(alike) if share else alike.values()
    for positions in groups:
        schema, rows = infer_schema([events[position] for position in positions])
        yield schema, rows, positions


def _share(alike: dict[tuple[Any, ...], list[int]]) -> list[list[int]]:
    """Merge groups of few events that differ only in the name of their events.

    A group is a list of positions. The groups in the result are sorted by their first positions.
    """
    groups: list[list[int]] = []
    shared: dict[tuple[Any, ...], list[int]] = {}
    for (kind, name, *traits), positions in alike.items():
        if len(positions) >= _FEW or type(name) is not str:
            groups.append(positions)
        else:
            shared.setdefault((kind, *traits), []).extend(positions)
    return sorted([*groups, *map(sorted, shared.values())])


def make_batches(events: Iterable[Event]) -> Iterator[Batch]:
    """Yield batches of the events, as if the events had been written to a file and read back."""
    remaining = iter(events)
    first = 0
    while chunk := list(islice(remaining, _CHUNK)):
        for schema, rows, positions in fold_events(chunk, share=False):
            encoder = BlockEncoder(schema)
            encoder.extend(rows, [first + position for position in positions])
            payload = encoder.payload()
            yield decode_block(values.unpack(payload), len(payload))
        first += len(chunk)


def split_names(batch: Batch) -> Iterator[Batch]:
    """Split a batch into batches whose events all have the same name."""
    if "name" not in batch.fields:
        yield batch
        return
    for part in make_batches(event for _, event in batch.events()):
        yield replace(part, sequence=batch.sequence[part.sequence])


def infer_schema(events: Sequence[Event]) -> tuple[Schema, Columns]:
    """Return a schema for events, and the rows of the events.

    All events must have args with the same names, but may themselves have different names.
    """
    first = events[0]
    names = list(map(_name, events))
    mixed = names.count(first.name) < len(names)
    # The class determines the fields of an event, because user code may set any phase.
    phase = next(key for key, kind in EVENT_CLASSES.items() if isinstance(first, kind))
    fields = [(name, list(map(attrgetter(name), events))) for name in first.FIELDS]
    if mixed:
        fields.append(("name", names))
    if first.phase != phase:
        fields.append(("phase", [event.phase for event in events]))
    all_args = list(map(_args, events))
    args = [(name, [args[name] for args in all_args]) for name in first.args]
    # Each column gets the narrowest codec that decodes to equal values.
    schema = Schema(
        phase,
        "" if mixed else first.name,
        tuple((name, _infer_codec(name, items)) for name, items in fields),
        tuple((name, _infer_codec(name, items)) for name, items in args),
    )
    return schema, Columns([items for _, items in fields + args])


def _infer_codec(name: str, items: list[Any]) -> str:
    kinds = set(map(type, items))
    if kinds <= {float, np.float64}:
        return "float"
    if all(kind is int or issubclass(kind, np.integer) for kind in kinds):
        return "int" if min(items) >= -(1 << 63) and max(items) < 1 << 63 else "value"
    if kinds <= {str, type(None)}:
        return "key" if name == "key" and kinds == {str} else "text"
    if name == "key":
        return "key"
    if name in ("dependencies", "dependents") and kinds == {list}:
        return "keys"
    return "value"


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
    output
        The file.
    losses
        Counts dropped events and errors.
    pause
        A function that is called between slices, to let other threads run.
    """

    def __init__(self, output: TraceOutput, losses: Losses, pause: Callable[[], None]) -> None:
        self._output = output
        self._losses = losses
        self._pause = pause
        #: Time since which the writing thread waits for the disk (on the monotonic clock), or None.
        self.waits_since: float | None = None

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

    def append(self, frame: bytes, block: BlockFacts | None = None) -> None:
        """Append a frame. Errors are logged. For the arguments, see `TraceOutput.append`."""
        self.waits_since = time.monotonic()
        try:
            self._output.append(frame, block)
        except Exception as error:
            if block is not None:
                self._losses.add(cause_of(error), block[-1])
            self._losses.warn("cannot write facts to", error)
        finally:
            self.waits_since = None

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
        first = self._output.events
        for schema, rows, positions in folded:
            if schema not in blocks:
                blocks[schema] = BlockEncoder(schema, source.constants)
            for failure in blocks[schema].extend(rows, _from(first, positions), self._pause):
                self.failed("not encoded", 1, failure)
            self._output.events += len(rows)

    def _store(self, block: BlockEncoder) -> None:
        """Append a block to the file. If that fails, count the block's rows as dropped."""
        try:
            payload = block.payload(self._pause, **self._output.common_entries())
            frame = frames.build_frame(deflate(payload))
        except Exception as error:
            self.failed("recorder failed", block.rows, error)
            return
        self.append(frame, (block.schema.name, *block.span, block.rows))

    def failed(self, cause: str, count: int, error: Exception) -> None:
        """Count events that could not be encoded because of an error.

        They are counted under `cause`, or under ``no memory`` if the error is a `MemoryError`.
        """
        self._losses.add("no memory" if isinstance(error, MemoryError) else cause, count)
        self._losses.errors += 1
        self._losses.warn("cannot encode facts for", error, trace=True)
