"""A trace file whose facts are on disk: what there is much of as Parquet, the rest in memory.

Task runs and transfers are what a large run has many of. They are written in *parts*: all task runs
of a key, by its worker and by the scheduler, are in the same part of every file, so that a part can
be analysed by itself. Each Parquet file has a row group a part.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dasfprof.analysis.large.spilled import SpilledFile, SpilledRows, key_parts
from dasfprof.analysis.trace.columns import FactColumns, as_list_column, to_numbers
from dasfprof.analysis.trace.keys import KeyCollector, function_of
from dasfprof.analysis.trace.tasks import P2P_BARRIER
from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import (
    Array,
    NumberColumn,
)
from dasfprof.database.reader import TraceFile
from dasfprof.database.schemas import split_names
from dasfprof.errors import CannotWriteError
from dasfprof.schema.declaration import EventKind
from dasfprof.schema.tasks import COMPUTE, TASK_RUN, TRANSFER

#: The kinds that are spilled.
_SPILLED = {(kind.phase, kind.name): kind for kind in (COMPUTE, TASK_RUN, TRANSFER)}
#: Rows of a Parquet file: what is in memory meanwhile.
_ROWS = 1 << 19
#: What no part needs, since it leads to the keys of others.
_LEFT_OUT = ("dependencies",)


def spill(source: TraceFile, directory: Path, parts: int) -> SpilledFile:
    """Read a trace file, and write what there is much of as Parquet files.

    Parameters
    ----------
    source
        The trace file.
    directory
        Where to write; nobody else writes there.
    parts
        The number of parts.

    Raises
    ------
    SourceNotFoundError, NotATraceError
        If there is no such file, or it is no trace.
    CannotWriteError
        If there is no room for the Parquet files.
    """
    file = SpilledFile(source)
    directory.mkdir(parents=True, exist_ok=True)
    pending = {identity: _Pending(kind, parts) for identity, kind in _SPILLED.items()}
    for batch in chain.from_iterable(map(split_names, source.batches())):
        of_kind = pending.get((batch.phase, batch.name))
        if of_kind is None:
            file.rest.append(batch)
            continue
        of_kind.add(batch)
        if of_kind.facts.rows >= _ROWS:
            of_kind.write(directory, file)
    for of_kind in pending.values():
        if of_kind.facts.rows:
            of_kind.write(directory, file)
        file.unknown_inputs += of_kind.unknown_inputs
    return file


class _Pending:
    """Rows of one kind that are not written yet."""

    def __init__(self, kind: EventKind, parts: int) -> None:
        self._kind, self._parts = kind, parts
        self._forms = {**kind.forms(), **kind.forms(stimuli=True)}
        self._forms = {name: form for name, form in self._forms.items() if name not in _LEFT_OUT}
        self._forms |= {"process_id": "category", "thread_id": "category"}
        self.unknown_inputs = 0
        self._begin()

    def _begin(self) -> None:
        self._collector = KeyCollector()
        self.facts = FactColumns(self._collector, self._forms)

    def add(self, batch: Batch) -> None:
        """Take a batch."""
        args = {**batch.args}
        for name in ("process_id", "thread_id"):
            if name in batch.fields:
                args[name] = batch.fields[name]
        if self._kind is COMPUTE:
            args["input_size"] = self._input_sizes(batch)
        for name in _LEFT_OUT:
            args.pop(name, None)
        nobody = np.broadcast_to(np.int32(-1), batch.rows)
        self.facts.add(replace(batch, args=args), nobody)

    def _input_sizes(self, batch: Batch) -> NumberColumn:
        """Return the bytes that each task run took in, as `TraceBuilder` finds them."""
        sizes = np.full(batch.rows, np.nan)
        if "input_size" in batch.args:
            sizes[:] = to_numbers(batch.args["input_size"])
        if "dependencies" in batch.args:
            lists = as_list_column(batch.args["dependencies"])
            lengths = np.diff(lists.offsets)
            sizes[np.isnan(sizes) & (lengths == 0)] = 0.0
            unknown = np.isnan(sizes)
            named: dict[tuple[int, str], str] = {}
            of_shuffles = [
                P2P_BARRIER in str(head[1]) and function_of(head, named) == P2P_BARRIER
                for head in lists.inner.heads
            ]
            if any(of_shuffles):
                rows = np.repeat(np.arange(batch.rows), lengths)
                takers = rows[np.array(of_shuffles)[lists.inner.codes]]
                sizes[takers] = np.nan
                unknown[takers] = False
            self.unknown_inputs += int(np.count_nonzero(unknown))
        return NumberColumn(sizes)

    def write(self, directory: Path, file: SpilledFile) -> None:
        """Write the rows as the next Parquet file, and begin anew."""
        heads, head_ids, tails = self._collector.split()
        found = self.facts.columns(np.arange(len(head_ids)))
        del found["worker_id"]
        entries: dict[str, list[Any]] = {}
        columns: dict[str, Array] = {}
        for name, form in {"timestamp": "float", "duration": "float", **self._forms}.items():
            if name not in found:
                continue
            if form == "key":
                columns[f"{name}.head"] = head_ids[found[name]]
                columns |= {f"{name}.{word}": tails[found[name], word] for word in range(4)}
            elif form == "keys":
                columns[f"{name}.items"] = found[name]
            elif form in ("category", "object"):
                columns[name], entries[name] = _coded(found[name])
            else:
                columns[name] = found[name]
        count = self.facts.rows
        if "key" in self._forms:
            parts = key_parts(heads, columns["key.head"], tails[found["key"]], self._parts)
        else:
            parts = np.arange(count) * self._parts // count
        constants = {k: v[0] for k, v in columns.items() if _is_constant(v)}
        columns = {k: v for k, v in columns.items() if k not in constants}
        sizes = np.bincount(parts, minlength=self._parts)
        row_groups = np.where(sizes > 0, np.cumsum(sizes > 0) - 1, -1)
        path = directory / f"{len(file.spilled)}.parquet"
        piece = SpilledRows(path, self._kind, row_groups, sizes, constants, entries, heads)
        _write(path, columns, np.argsort(parts, kind="stable"), sizes)
        file.spilled.append(piece)
        every = {**{k: np.broadcast_to(v, count) for k, v in constants.items()}, **columns}
        rows = _edges(every)
        file.edges.append(
            piece.batch({name: each[rows] for name, each in every.items()}, len(rows))
        )
        self._begin()


def _write(path: Path, columns: dict[str, Array], order: Array, sizes: Array) -> None:
    """Write columns in an order, as row groups of these sizes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = columns or {"none": np.zeros(len(order), dtype=np.int8)}
    table = pa.table({name: pa.array(column[order]) for name, column in columns.items()})
    with (
        no_room(path.parent),
        pq.ParquetWriter(
            path, table.schema, compression="zstd", use_dictionary=False, write_statistics=False
        ) as writer,
    ):
        begin = 0
        for size in sizes[sizes > 0].tolist():
            writer.write_table(table.slice(begin, size), row_group_size=size)
            begin += size


@contextmanager
def no_room(directory: Path) -> Iterator[None]:
    """Say what to do where a disk is full.

    Raises
    ------
    CannotWriteError
        If it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise CannotWriteError(
            f"no room in {directory} for what an analysis beyond memory keeps on disk, about half "
            "of the trace files' size. Name a directory with more room: the setting "
            "dasfprof.spill-directory, as DASK_DASFPROF__SPILL_DIRECTORY in the environment."
        ) from error


def _edges(columns: dict[str, Array]) -> Array:
    """Return the rows of each worker that began first and ended last."""
    begin = columns["timestamp"]
    length = columns.get("duration", np.zeros(len(begin)))
    ends = begin + np.where(np.isfinite(length), np.maximum(length, 0.0), 0.0)
    who = columns["process_id"].astype(np.int64) << 32 | columns["thread_id"]
    found = []
    for worker in np.unique(who).tolist():
        rows = np.flatnonzero((who == worker) & np.isfinite(begin))
        if len(rows):
            found += [rows[np.argmin(begin[rows])], rows[np.argmax(ends[rows])]]
    return np.array(found, dtype=np.int64)


def _coded(column: Any) -> tuple[Array, list[Any]]:
    """Return a column of categories or objects as codes, -1 for None, and what they stand for."""
    if hasattr(column, "codes"):
        return column.codes.astype(np.int32), list(column.categories)
    objects = column.to_numpy()
    identities = np.fromiter(map(id, objects), np.int64, len(objects))
    _, first, places = np.unique(identities, return_index=True, return_inverse=True)
    values = [objects[row] for row in first.tolist()]
    known = [place for place, value in enumerate(values) if value is not None]
    codes = np.full(len(values), -1, dtype=np.int32)
    codes[known] = np.arange(len(known))
    return codes[places], [values[place] for place in known]


def _is_constant(column: Array) -> bool:
    first = column[0]
    if first != first:  # noqa: PLR0124  (NaN)
        return bool(np.isnan(column).all())
    return bool((column == first).all())
