"""Batches: many like events as columns, in memory and as the payload of a frame.

A `Schema` says what a kind of event looks like, a `BatchEncoder` turns rows of it into a payload,
and `decode_batch` turns a payload into a `Batch`. Rows of a schema are tuples in the order of its
columns; `infer_schema` makes one for events that user code records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

import numpy as np

from dasfprof.database import columns, encoders, values
from dasfprof.events import EVENT_CLASSES, Event


@dataclass(frozen=True)
class Schema:
    """The form of a kind of event.

    Parameters
    ----------
    phase, name
        As in the events.
    fields
        Codecs of the event's own fields (`timestamp`, `duration`, ...), see `encoders.CODECS`.
    args
        Codecs of its args.
    """

    phase: str
    name: str
    fields: tuple[tuple[str, str], ...]
    args: tuple[tuple[str, str], ...]

    @property
    def codecs(self) -> list[str]:
        """One codec a column: the fields, then the args."""
        return [codec for _, codec in self.fields + self.args]


class BatchEncoder:
    """Collects the rows of one block, slice by slice.

    Parameters
    ----------
    schema
        The form of the rows.
    constants
        Values of further fields that are the same in every row: the host, the worker.
    """

    def __init__(self, schema: Schema, constants: dict[str, Any] | None = None) -> None:
        self.schema = schema
        self.rows = 0
        self._constants = constants or {}
        self._sequence: list[int] = []
        self._encoders = [encoders.encoder(codec) for codec in schema.codecs]

    def extend(self, rows: Sequence[tuple[Any, ...]], sequence: Sequence[int]) -> None:
        """Add rows; `sequence` holds their positions among all events of the file."""
        for encoder, items in zip(self._encoders, zip(*rows, strict=True), strict=True):
            encoder.extend(items)
        self._sequence += sequence
        self.rows += len(rows)

    def payload(self, **about: Any) -> bytes:
        """Give the block's payload; `about` goes into its map (FORMAT.md)."""
        encoded = [encoder.finish() for encoder in self._encoders]
        names = [name for name, _ in self.schema.fields]
        fields: dict[str, Any] = dict(zip(names, encoded, strict=False))
        for name, value in self._constants.items():
            fields[name] = [columns.DICTIONARY, [columns.CONSTANT, 0], [value]]
        block = {
            "kind": "events",
            "phase": self.schema.phase,
            "name": self.schema.name,
            "rows": self.rows,
            **about,
            "sequence": encoders.encode_numbers(np.array(self._sequence, dtype="<i8")),
            "fields": fields,
            "args": dict(
                zip((name for name, _ in self.schema.args), encoded[len(names) :], strict=True)
            ),
        }
        packed = values.pack(block)
        # Rows that are all alike take no bytes; the padding lets readers refuse absurd counts.
        items = (encoder.items for encoder in self._encoders)
        missing = max(self.rows, *items) - len(packed)
        return packed if missing <= 0 else values.pack({**block, "padding": bytes(missing)})


@dataclass(frozen=True)
class Batch:
    """Like events as columns."""

    phase: str
    name: str
    rows: int
    #: Positions among all events of the file, shape (rows,).
    sequence: columns.Array
    fields: dict[str, columns.Column]
    args: dict[str, columns.Column] = field(default_factory=dict)

    def events(self) -> list[tuple[int, Event]]:
        """Make the event objects, each with its position in the file."""
        make = EVENT_CLASSES[self.phase]
        names = list(self.args)
        lists = [column.to_list() for column in self.args.values()]
        args: Iterator[tuple[Any, ...]] | Any = zip(*lists, strict=True) if lists else repeat(())
        own = [column.to_list() for column in self.fields.values()]
        fields = list(self.fields)
        return [
            (
                position,
                make(
                    name=self.name,
                    **dict(zip(fields, row, strict=True)),
                    args=dict(zip(names, arg, strict=True)),
                ),
            )
            for position, row, arg in zip(
                self.sequence.tolist(), zip(*own, strict=True), args, strict=False
            )
        ]


def decode_batch(block: dict[str, Any], limit: int) -> Batch:
    """Decode the map of a block.

    Parameters
    ----------
    block
        The payload's map.
    limit
        The payload's length in bytes: a block has no more rows, and no more list items.

    Raises
    ------
    columns.CorruptBlockError
        If it is not as FORMAT.md says.
    """
    try:
        rows, phase, name = block["rows"], block["phase"], block["name"]
        encoded_fields, encoded_args = block["fields"].items(), block["args"].items()
        sequence = block["sequence"]
    except (KeyError, TypeError, AttributeError) as error:
        raise columns.CorruptBlockError(f"a block without {error}") from error
    if type(rows) is not int or not 0 <= rows <= limit:
        raise columns.CorruptBlockError(f"a block of {limit} bytes claims {rows!r} rows")
    if phase not in EVENT_CLASSES or not isinstance(name, str):
        raise columns.CorruptBlockError(f"a block of phase {phase!r} and name {name!r}")
    valid = {*EVENT_CLASSES[phase].FIELDS, "phase"}
    fields = {
        key: columns.decode(value, rows, limit) for key, value in encoded_fields if key in valid
    }
    needed = {"timestamp", "duration"} & valid
    if not needed <= fields.keys():
        raise columns.CorruptBlockError(f"a block without {', '.join(needed - fields.keys())}")
    return Batch(
        phase,
        name,
        rows,
        columns.decode_numbers(sequence, rows).array,
        fields,
        {str(key): columns.decode(value, rows, limit) for key, value in encoded_args},
    )


# --- events that user code records ---------------------------------------------------------------

_CHUNK = 50_000


def fold_events(
    events: Sequence[Event],
) -> Iterator[tuple[Schema, list[tuple[Any, ...]], list[int]]]:
    """Sort events into rows of schemas, with the positions that they had."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for position, event in enumerate(events):
        key = type(event), event.name, event.phase, tuple(event.args)
        alike.setdefault(key, []).append(position)
    for positions in alike.values():
        schema, rows = infer_schema([events[position] for position in positions])
        yield schema, rows, positions


def make_batches(events: Iterable[Event]) -> Iterator[Batch]:
    """Give any events as columns, as if they had been written to a file and read."""
    remaining = iter(events)
    first = 0
    while chunk := list(islice(remaining, _CHUNK)):
        for schema, rows, positions in fold_events(chunk):
            encoder = BatchEncoder(schema)
            encoder.extend(rows, [first + position for position in positions])
            payload = encoder.payload()
            yield decode_batch(values.unpack(payload), len(payload))
        first += len(chunk)


def infer_schema(events: Sequence[Event]) -> tuple[Schema, list[tuple[Any, ...]]]:
    """Make the schema of like events, and their rows.

    The narrowest codec that gives every value back equal, and of the same type, is chosen for each
    column.
    """
    first = events[0]
    # The class, not the phase, says which fields an event has: user code may set any phase.
    phase = next(key for key, kind in EVENT_CLASSES.items() if kind is type(first))
    fields = [(name, [getattr(event, name) for event in events]) for name in first.FIELDS]
    if first.phase != phase:
        fields.append(("phase", [event.phase for event in events]))
    args = [(name, [event.args[name] for event in events]) for name in first.args]
    schema = Schema(
        phase,
        first.name,
        tuple((name, _infer_codec(name, items)) for name, items in fields),
        tuple((name, _infer_codec(name, items)) for name, items in args),
    )
    return schema, list(zip(*(items for _, items in fields + args), strict=True))


def _infer_codec(name: str, items: list[Any]) -> str:
    kinds = set(map(type, items))
    if kinds == {float}:
        return "float"
    if kinds == {int}:
        return "int" if min(items) >= -(1 << 63) and max(items) < 1 << 63 else "value"
    if kinds <= {str, type(None)}:
        return "key" if name == "key" and kinds == {str} else "text"
    if name == "key":
        return "key"
    if name in ("dependencies", "dependents") and kinds == {list}:
        return "keys"
    return "value"
