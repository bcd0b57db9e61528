"""Events that user code records, as rows: schemas are inferred from what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dasfprof.database import values
from dasfprof.database.batch import Batch, BatchEncoder, decode_batch
from dasfprof.schema.declaration import Schema
from dasfprof.schema.events import EVENT_CLASSES, Event

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

    The narrowest codec that gives every value back equal is chosen for each column.
    """
    first = events[0]
    # The class, not the phase, says which fields an event has: user code may set any phase.
    phase = next(key for key, kind in EVENT_CLASSES.items() if isinstance(first, kind))
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
