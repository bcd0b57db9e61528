"""What a spilled trace file holds: parts of it are read as trace files."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.analysis.trace.key_numbers import hashes_of
from dasfprof.analysis.trace.keys import KeyCollector, as_key_column
from dasfprof.database import keys
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import (
    Array,
    Column,
    DictionaryColumn,
    KeyColumn,
    ListColumn,
    NumberColumn,
)
from dasfprof.database.reader import TraceFile
from dasfprof.schema.declaration import EventKind

#: A kind in memory whose rows are looked for among the task runs of their keys.
_OF_TASK_RUNS = "Task Under Way"
#: Fields of events that are kept, beside their args.
FIELDS: tuple[str, ...] = ("timestamp", "duration", "process_id", "thread_id")


@dataclass(frozen=True)
class SpilledRows:
    """A Parquet file with rows of one kind of event.

    Parameters
    ----------
    path, kind
        The file and the kind.
    row_groups
        The row group of each part, -1 where a part has no rows.
    rows
        The number of rows of each part.
    constants
        The value of each column that has but one, which the file lacks.
    entries
        For each column of codes what they stand for.
    heads
        Those of the keys.
    """

    path: Path
    kind: EventKind
    row_groups: Array
    rows: Array
    constants: dict[str, Any]
    entries: dict[str, list[Any]]
    heads: list[keys.Head]

    def read(self, part: int) -> dict[str, Array]:
        """Return the columns of a part that the file has; `batch` adds the rest."""
        if self.row_groups[part] < 0:
            return {}
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            table = file.read_row_group(int(self.row_groups[part]), use_threads=False)
        return {name: table[name].to_numpy() for name in table.column_names}

    def nothing(self) -> Batch:
        """Return a batch without rows, which tells the workers that others are of all the same."""
        columns = {name: np.empty(0, dtype=np.int32) for name in self.entries}
        return replace(self, constants={}).batch(columns, 0)

    def batch(self, columns: dict[str, Array], rows: int) -> Batch:
        """Make a batch of columns."""
        columns = {**{k: np.broadcast_to(v, rows) for k, v in self.constants.items()}, **columns}
        forms = {**self.kind.forms(), **self.kind.forms(stimuli=True)}
        made: dict[str, Column] = {}
        for name in (*FIELDS, *forms):
            if name in self.entries:
                made[name] = DictionaryColumn(columns[name] + 1, [None, *self.entries[name]])
            elif f"{name}.head" in columns:
                tails = np.stack([columns[f"{name}.{word}"] for word in range(4)], axis=1)
                made[name] = KeyColumn(self.heads, columns[f"{name}.head"], tails)
            elif f"{name}.items" in columns:
                made[name] = self._lists(name, columns)
            elif name in columns:
                made[name] = NumberColumn(columns[name])
        fields = {name: made.pop(name) for name in FIELDS if name in made}
        return Batch(self.kind.phase, self.kind.name, rows, np.arange(rows), fields, made)

    def _lists(self, name: str, columns: dict[str, Array]) -> ListColumn:
        """Return lists of which only the lengths are known: nothing here asks for their keys."""
        offsets = np.r_[0, np.cumsum(columns[f"{name}.items"])]
        count = int(offsets[-1])
        none = np.zeros(count, dtype=np.int64)
        return ListColumn(offsets, KeyColumn([(keys.TEXT, "")], none, np.zeros((count, 4), "u4")))


@dataclass
class SpilledFile:
    """What a trace file holds."""

    #: The file, read.
    source: TraceFile
    #: What is not spilled.
    rest: list[Batch] = field(default_factory=list)
    #: What is, and of each piece of it the rows that began first and ended last.
    spilled: list[SpilledRows] = field(default_factory=list)
    edges: list[Batch] = field(default_factory=list)
    #: Task runs of which only the sizes of their dependencies tell how much they took in.
    unknown_inputs: int = 0

    def read(self, part: int) -> list[dict[str, Array]]:
        """Read the columns of a part, of each piece that is spilled."""
        return [piece.read(part) for piece in self.spilled]

    def rows(self, part: int, columns: list[dict[str, Array]] | None = None) -> list[Batch]:
        """Return the spilled rows of a part; `columns` are those that `read` gave elsewhere."""
        pieces = zip(self.spilled, columns or self.read(part), strict=True)
        return [
            piece.batch(found, int(piece.rows[part])) if piece.rows[part] else piece.nothing()
            for piece, found in pieces
        ]

    def holds(self, kind: EventKind) -> bool:
        """Return whether rows of a kind were spilled."""
        return any(piece.kind is kind for piece in self.spilled)


class PartFile(TraceFile):
    """A part of a spilled file, to be read as a trace file.

    Parameters
    ----------
    file
        The spilled file.
    rows
        The batches that belong to the part, besides what is not spilled.
    part, parts
        Which part it is, and of how many; -1: none of them.
    """

    def __init__(self, file: SpilledFile, rows: list[Batch], part: int, parts: int) -> None:
        super().__init__(**deepcopy(vars(file.source)))  # readers may add to what they find
        self._rest, self._rows, self._part, self._parts = file.rest, rows, part, parts

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the part."""
        for batch in self._rest:
            if batch.name != _OF_TASK_RUNS or "key" not in batch.args:
                yield batch
            else:
                parts = _parts_of_keys(batch.args["key"], self._parts)
                rows = np.flatnonzero(parts == self._part)
                if len(rows):
                    yield _taken(batch, rows)
        yield from self._rows


def _parts_of_keys(column: Column, parts: int) -> Array:
    collector = KeyCollector()
    collector.add(as_key_column(column))
    return key_parts(*collector.split(), parts)


def key_parts(heads: list[keys.Head], head_ids: Array, tails: Array, parts: int) -> Array:
    """Return the part of each key: the same whoever reads which file."""
    texts = [repr(head).encode("utf-8", "backslashreplace") for head in heads]
    codes = np.array([zlib.crc32(text) for text in texts], dtype=np.int64)
    hashes = hashes_of(codes[head_ids], np.ascontiguousarray(tails))
    found: Array = (hashes % np.uint64(parts)).astype(np.int64)
    return found


def _taken(batch: Batch, rows: Array) -> Batch:
    """Return some rows of a batch."""

    def take(column: Column) -> Column:
        if isinstance(column, NumberColumn):
            return replace(column, array=column.array[rows])
        if isinstance(column, DictionaryColumn):
            return replace(column, codes=column.codes[rows])
        if isinstance(column, KeyColumn):
            return replace(column, codes=column.codes[rows], tails=column.tails[rows])
        lengths = np.diff(column.offsets)[rows]
        offsets = np.r_[0, np.cumsum(lengths)]
        places = np.arange(offsets[-1]) + np.repeat(column.offsets[rows] - offsets[:-1], lengths)
        inner = column.inner
        taken = replace(inner, codes=inner.codes[places], tails=inner.tails[places])
        return ListColumn(offsets, taken)

    return replace(
        batch,
        rows=len(rows),
        sequence=batch.sequence[rows],
        fields={name: take(column) for name, column in batch.fields.items()},
        args={name: take(column) for name, column in batch.args.items()},
    )
