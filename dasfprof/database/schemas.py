"""Schemas and rows of the events that user code records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from dasfprof.database import values
from dasfprof.database.block_codec import Batch, BlockEncoder, Columns, decode_block
from dasfprof.schema.declaration import Schema
from dasfprof.schema.events import EVENT_CLASSES, Event

_CHUNK = 5_000
#: Events of a name, among those folded at a time, below which they share a schema with other names:
#: each schema is a frame of its own, which costs as much as 100 events.
_FEW = 4

_name, _phase, _args = map(attrgetter, ("name", "phase", "args"))


def fold_events(
    events: Sequence[Event], *, share: bool = True
) -> Iterator[tuple[Schema, Columns, Sequence[int]]]:
    """Yield the events as rows of schemas, each with its position.

    With `share`, names with few events share a schema.
    """
    traits = (map(type, events), map(_name, events), map(_phase, events), _names_of_args(events))
    if all(len(set(trait)) == 1 for trait in traits):  # as in most loops
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
    """Join the positions of names with few events; groups are in the order of their first ones."""
    groups: list[list[int]] = []
    shared: dict[tuple[Any, ...], list[int]] = {}
    for (kind, name, *traits), positions in alike.items():
        if len(positions) >= _FEW or type(name) is not str:
            groups.append(positions)
        else:
            shared.setdefault((kind, *traits), []).extend(positions)
    return sorted([*groups, *map(sorted, shared.values())])


def _names_of_args(events: Iterable[Event]) -> Iterator[tuple[Any, ...]]:
    return map(tuple, map(_args, events))


def make_batches(events: Iterable[Event]) -> Iterator[Batch]:
    """Yield events as columns, as if they had been written to a file and read back."""
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
    """Yield a batch of several names as batches of one name each."""
    if "name" not in batch.fields:
        yield batch
        return
    for part in make_batches(event for _, event in batch.events()):
        yield replace(part, sequence=batch.sequence[part.sequence])


def infer_schema(events: Sequence[Event]) -> tuple[Schema, Columns]:
    """Return the schema of events with equal args, and their rows.

    Names that differ become a field. Each column gets the narrowest codec that decodes to equal
    values.
    """
    first = events[0]
    names = list(map(_name, events))
    mixed = names.count(first.name) < len(names)
    # The class, not the phase, says which fields an event has: user code may set any phase.
    phase = next(key for key, kind in EVENT_CLASSES.items() if isinstance(first, kind))
    fields = [(name, list(map(attrgetter(name), events))) for name in first.FIELDS]
    if mixed:
        fields.append(("name", names))
    if first.phase != phase:
        fields.append(("phase", [event.phase for event in events]))
    all_args = list(map(_args, events))
    args = [(name, [args[name] for args in all_args]) for name in first.args]
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
