"""The block codec: many events of one kind as columns, in memory and as the payload of a frame.

A `Schema` declares the columns of a kind of event, a `BlockEncoder` turns its rows into a block,
and `decode_block` turns a block into a `Batch`. Rows of a schema are tuples in the order of its
columns; `schemas.infer_schema` makes one for events that user code records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import numpy as np

from dasfprof.database import columns, encoders, values
from dasfprof.database.encoders import encode_numbers
from dasfprof.database.numbers import number_array
from dasfprof.schema.declaration import Schema
from dasfprof.schema.events import EVENT_CLASSES, Event


class Columns:
    """Rows stored column by column, without a tuple for each that the garbage collector tracks.

    Parameters
    ----------
    columns
        One sequence for each column of a schema, all of one length.
    """

    def __init__(self, columns: Sequence[Sequence[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: slice) -> Columns:
        return Columns([column[rows] for column in self.columns])


Rows = Sequence[tuple[Any, ...]] | Columns


#: Values that a payload may decode to for each of its bytes. Payloads of equal rows, which could be
#: shorter, are padded to it, so that a reader can refuse absurd row counts.
VALUES_PER_BYTE = 2


class BlockEncoder:
    """Collects the rows of one block, slice by slice.

    Parameters
    ----------
    schema
        The form of the rows.
    constants
        Further fields with the same value in every row, such as the host and the worker.
    """

    def __init__(self, schema: Schema, constants: dict[str, Any] | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._constants = constants or {}
        self._sequence: list[int] = []
        self._encoders = [encoders.encoder(codec) for codec in schema.codecs]
        #: When the first event begins and the last ends; the first later where no time is a number.
        self.span = (np.inf, -np.inf)
        names = [name for name, _ in schema.fields]
        self._times = [names.index(name) for name in ("timestamp", "duration") if name in names]

    def extend(
        self, rows: Rows, sequence: Sequence[int], rest: Callable[[], None] = lambda: None
    ) -> list[Exception]:
        """Add rows; `sequence` holds their positions among all events of the file.

        Rows that a codec cannot hold are left out; returns their errors. `rest` is called after
        each column, to let other threads run.
        """
        error = self._convert(rows, sequence, rest)
        if error is None or len(rows) == 1:
            return [] if error is None else [error]
        half = len(rows) // 2
        errors = self.extend(rows[:half], sequence[:half], rest)
        return errors + self.extend(rows[half:], sequence[half:], rest)

    def _convert(
        self, rows: Rows, sequence: Sequence[int], rest: Callable[[], None]
    ) -> Exception | None:
        """Add all rows, or none if there is an error."""
        converted = []
        try:
            columns = rows.columns if isinstance(rows, Columns) else zip(*rows, strict=True)
            for encoder, items in zip(self._encoders, columns, strict=True):
                converted.append(encoder.convert(items))
                rest()
        except Exception as error:
            return error
        for encoder, part in zip(self._encoders, converted, strict=True):
            encoder.add(part)
        self._widen_span(converted)
        self._sequence += sequence
        self.rows += len(rows)
        return None

    def _widen_span(self, converted: list[Any]) -> None:
        times = [converted[at] for at in self._times]
        if len(times[0]) and all(
            isinstance(part, np.ndarray) and part.dtype.kind == "f" for part in times
        ):
            with np.errstate(over="ignore"):
                ends = np.fmax(times[0], sum(times))
            first, last = float(np.fmin.reduce(times[0])), float(np.fmax.reduce(ends))
        else:  # user code may have recorded anything
            first, last = -np.inf, np.inf
        self.span = (min(self.span[0], first), max(self.span[1], last))

    def payload(self, rest: Callable[[], None] = lambda: None, **about: Any) -> bytes:
        """Return the block's payload.

        Parameters
        ----------
        rest
            Called after each column, to let other threads run.
        **about
            Further entries of the block's map (FORMAT.md).
        """
        encoded = []
        for encoder in self._encoders:
            encoded.append(encoder.finish())
            rest()
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
    """Events of one phase, as columns."""

    phase: str
    #: Of all events; empty where they have a field ``name``.
    name: str
    rows: int
    #: Positions among all events of the file, shape (rows,).
    sequence: columns.Array
    fields: dict[str, columns.Column]
    args: dict[str, columns.Column] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The name of each event."""
        names = self.fields.get("name")
        return [self.name] * self.rows if names is None else names.to_list()

    def take(self, rows: columns.Array) -> Batch:
        """Return some of the events."""
        return replace(
            self,
            rows=len(rows),
            sequence=self.sequence[rows],
            fields={name: column.take(rows) for name, column in self.fields.items()},
            args={name: column.take(rows) for name, column in self.args.items()},
        )

    def events(self) -> list[tuple[int, Event]]:
        """Return the events, each with its position in the file."""
        make = EVENT_CLASSES[self.phase]
        names = list(self.args)
        lists = [column.to_list() for column in self.args.values()]
        args: Iterator[tuple[Any, ...]] | Any = zip(*lists, strict=True) if lists else repeat(())
        own = [self.names, *(c.to_list() for name, c in self.fields.items() if name != "name")]
        fields = ["name", *(name for name in self.fields if name != "name")]
        return [
            (
                position,
                make(
                    **dict(zip(fields, row, strict=True)),
                    args=dict(zip(names, arg, strict=True)),
                ),
            )
            for position, row, arg in zip(
                self.sequence.tolist(), zip(*own, strict=True), args, strict=False
            )
        ]


def decode_block(block: dict[str, Any], limit: int) -> Batch:
    """Decode the map of a block.

    Parameters
    ----------
    block
        The payload's map.
    limit
        The payload's length in bytes, which bounds the values that it may hold.

    Raises
    ------
    columns.CorruptBlockError
        If the block does not follow FORMAT.md.
    """
    try:
        rows, phase, name = block["rows"], block["phase"], block["name"]
        fields, args, sequence = block["fields"], block["args"], block["sequence"]
        valid = {"name", "phase", *EVENT_CLASSES[phase].FIELDS}
    except (KeyError, TypeError) as error:
        raise columns.CorruptBlockError(f"a block without a valid {error}") from error
    if not (isinstance(name, str) and isinstance(fields, dict) and isinstance(args, dict)):
        raise columns.CorruptBlockError("a block whose name, fields or args are of a wrong type")
    room = VALUES_PER_BYTE * limit
    if type(rows) is not int or not 0 <= rows * (1 + len(fields) + len(args)) <= room:
        raise columns.CorruptBlockError(f"a block of {limit} bytes claims {rows!r} rows")
    room -= rows * (1 + len(fields) + len(args))
    needed = valid & {"timestamp", "duration"}
    if not needed <= fields.keys():
        raise columns.CorruptBlockError(f"a block without {', '.join(needed - fields.keys())}")
    positions = columns.decode(sequence, rows, 0)
    if not isinstance(positions, columns.NumberColumn) or positions.array.dtype.kind not in "ui":
        raise columns.CorruptBlockError("a sequence that is not of whole numbers")
    known = {key: encoded for key, encoded in fields.items() if key in valid}
    own, room = _decode_columns(known, rows, room)
    names = own.get("name")
    if names is not None and not _is_text(names):
        raise columns.CorruptBlockError("names that are no texts")
    more, _ = _decode_columns(args, rows, room)
    return Batch(phase, name, rows, positions.array, own, more)


def _is_text(column: columns.Column) -> bool:
    return isinstance(column, columns.DictionaryColumn) and all(
        isinstance(entry, str) for entry in column.entries
    )


def _decode_columns(
    encoded: dict[str, Any], rows: int, room: int
) -> tuple[dict[str, columns.Column], int]:
    """Decode columns whose lists hold at most `room` items; return the room that is left."""
    decoded = {}
    for name, item in encoded.items():
        column = decoded[name] = columns.decode(item, rows, room)
        if isinstance(column, columns.ListColumn):
            room -= len(column.inner)
    return decoded, room
