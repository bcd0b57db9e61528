"""`Completion`: adds to each event, as it is read, what other events of the same files say.

A file holds what its process knew when it recorded, and the analysis combines the files. Code that
takes events one by one, as analyses of DASF's events do, cannot look at other events. For it:

- each "Resource Usage" event has the last known value of each of its fields. A process reads some
  of them less often than others, and one process of a host reads what is the same for all of them;
- each "Compute" event has its ``dependents``: the keys of the tasks that take its key's result, as
  far as the files that are read together show. A key that ran again has the same at each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

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
from dasfprof.schema.events import Event

#: Prefix of the fields that one process reads for its whole host.
_OF_HOST = "host_"
#: Seconds before the first value of a field for which that value is used: rates and shares of CPU
#: are means over the time between two readings, so the first sample has none.
_BEFORE_FIRST = 10.0

#: A host in a run: the run's id, the host's name and its boot.
_Host = tuple[Any, Any, Any]
#: For each field: the times at which it is known, in order, and its values then.
_Known = dict[str, tuple[Array, Array]]


class Completion:
    """Completes the events of files that are read together.

    Only what dasfprof's plugins recorded is completed: events of user code stay as they are.
    Files are read when their facts are first needed. Memory: 40 bytes for each dependency, and the
    numbers of the samples of one process and of the hosts.

    Parameters
    ----------
    paths
        The files.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._dependents: _Dependents | None = None
        self._of_hosts: dict[_Host, _Known] | None = None

    def events(self, file: TraceFile) -> Iterator[Event]:
        """Yield the events of one of the files in the order in which they were recorded."""
        pending: list[tuple[int, Event]] = []
        last = -1
        for batch in self._batches(file):
            # Positions are interleaved among the blocks that were written together, and those
            # blocks are in the order of their first positions.
            if batch.rows and int(batch.sequence[0]) > last:
                yield from _in_order(pending)
                pending = []
            last = max(last, *batch.sequence[-1:].tolist())
            pending += batch.events()
        yield from _in_order(pending)

    def _batches(self, file: TraceFile) -> Iterator[Batch]:
        plugin = file.read_header().get("plugin")
        if plugin == "ResourceMonitor":
            known = self._known_in(file.path)
            for batch in file.batches():
                yield _with_known_values(batch, known) if _is_usage(batch) else batch
        elif plugin == "TracePlugin":
            self._dependents = self._dependents or _Dependents(self._paths)
            for batch in file.batches():
                yield self._dependents.added_to(batch)
        else:
            yield from file.batches()

    def _known_in(self, path: Path) -> _Known:
        """Return the known values of a process and its host."""
        if self._of_hosts is None:
            found: dict[_Host, list[Batch]] = {}
            for other in self._paths:
                header, batches = _usage_in(other)
                found.setdefault(_host_of(header), []).extend(map(_host_fields, batches))
            self._of_hosts = {host: _known_values(batches) for host, batches in found.items()}
        header, batches = _usage_in(path)
        return _known_values(batches) | self._of_hosts.get(_host_of(header), {})


def _in_order(pending: list[tuple[int, Event]]) -> Iterator[Event]:
    pending.sort(key=lambda pair: pair[0])
    for _, event in pending:
        yield event


# --- samples -------------------------------------------------------------------------------------


def _is_usage(batch: Batch) -> bool:
    return batch.name == "Resource Usage"


def _usage_in(path: Path) -> tuple[dict[str, Any], list[Batch]]:
    """Return a file's header, and its samples of a process, if any."""
    file = TraceFile(path)
    header = dict(file.read_header())
    if header.get("plugin") != "ResourceMonitor":
        return header, []
    return header, [batch for batch in file.batches() if _is_usage(batch)]


def _host_of(header: dict[str, Any]) -> _Host:
    host, boot = header.get("host"), header.get("boot_id")
    return str(header.get("run_uuid")), str(host), str(boot)


def _host_fields(batch: Batch) -> Batch:
    args = {name: arg for name, arg in batch.args.items() if name.startswith(_OF_HOST)}
    return replace(batch, args=args)


def _known_values(batches: list[Batch]) -> _Known:
    """Collect the times and values at which each field is known, in the order of time."""
    pieces: dict[str, list[tuple[Array, Array]]] = {}
    for batch in batches:
        times = _values(batch.fields["timestamp"])
        for name, column in batch.args.items():
            values = _values(column)
            there = _is_known(values)
            pieces.setdefault(name, []).append((times[there], values[there]))
    known = {}
    for name, found in pieces.items():
        times = np.concatenate([times for times, _ in found]).astype(float)
        order = np.argsort(times, kind="stable")
        known[name] = times[order], np.concatenate([values for _, values in found])[order]
    return known


def _with_known_values(batch: Batch, known: _Known) -> Batch:
    """Fill the fields that a sample lacks with the last known values; NaN where there is none."""
    times = _values(batch.fields["timestamp"])
    args: dict[str, Column] = {}
    for name, column in batch.args.items():
        values = _values(column)
        unknown = np.flatnonzero(~_is_known(values))
        filled = values.copy() if len(unknown) else values
        known_times, known_values = known.get(name, (times[:0], values[:0]))
        if len(unknown) and len(known_times):
            places = np.searchsorted(known_times, times[unknown], side="right") - 1
            soon = (places < 0) & (known_times[0] - times[unknown] <= _BEFORE_FIRST)
            told = (places >= 0) | soon
            filled[unknown[told]] = known_values[np.maximum(places[told], 0)]
        numeric = filled.dtype != object
        args[name] = (
            NumberColumn(filled)
            if numeric
            else DictionaryColumn(np.arange(batch.rows), filled.tolist())
        )
    return replace(batch, args=args)


def _values(column: Column) -> Array:
    """Return numbers as they are, with NaN for None; anything else as objects."""
    if isinstance(column, NumberColumn):
        return column.array
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_list()
    return values


def _is_known(values: Array) -> Array:
    if values.dtype == object:
        return np.array([value is not None for value in values], dtype=bool)
    known: Array = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    return known


# --- dependents ----------------------------------------------------------------------------------

#: Words of a key: the number of its head, then its tail.
_WORDS = 1 + keys.TAIL_WORDS


class _Dependents:
    """The task runs that took each key's result, found by the dependencies of all runs.

    Parameters
    ----------
    paths
        The files of the run.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._numbers: dict[keys.Head, int] = {}
        pieces = [np.empty((0, 2 * _WORDS), dtype=np.uint32)]
        for path in paths:
            file = TraceFile(path)
            if file.read_header().get("plugin") == "TracePlugin":
                pieces += [self._pairs(batch) for batch in file.batches()]
        pairs = np.concatenate(pieces)
        pairs = pairs[np.argsort(_as_texts(pairs), kind="stable")]
        new = np.ones(len(pairs), dtype=bool)  # a key that ran twice took its inputs twice
        new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
        #: A row for each pair: the words of the dependency, then of the dependent; sorted.
        self._takers = pairs[new][:, _WORDS:]
        self._taken = _as_texts(np.ascontiguousarray(pairs[new][:, :_WORDS]))
        self._heads = list(self._numbers)

    def added_to(self, batch: Batch) -> Batch:
        """Return the batch with the arg ``dependents`` added to task runs."""
        key = batch.args.get("key")
        if batch.name != "Compute" or not isinstance(key, KeyColumn):
            return batch
        wanted = _as_texts(self._words(key))
        first = np.searchsorted(self._taken, wanted, side="left")
        counts = np.searchsorted(self._taken, wanted, side="right") - first
        offsets = np.r_[0, np.cumsum(counts)]
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        takers = self._takers[np.repeat(first, counts) + within]
        column = ListColumn(offsets, KeyColumn(self._heads, takers[:, 0], takers[:, 1:]))
        return replace(batch, args={**batch.args, "dependents": column})

    def _pairs(self, batch: Batch) -> Array:
        """Return the words of each dependency and of the key that depends on it."""
        key, taken = batch.args.get("key"), batch.args.get("dependencies")
        if batch.name != "Compute" or not isinstance(key, KeyColumn):
            return np.empty((0, 2 * _WORDS), dtype=np.uint32)
        if not isinstance(taken, ListColumn):
            return np.empty((0, 2 * _WORDS), dtype=np.uint32)
        takers = np.repeat(self._words(key), np.diff(taken.offsets), axis=0)
        return np.concatenate([self._words(taken.inner), takers], axis=1)

    def _words(self, column: KeyColumn) -> Array:
        numbers = [self._numbers.setdefault(head, len(self._numbers)) for head in column.heads]
        words = np.empty((len(column), _WORDS), dtype=np.uint32)
        words[:, 0] = np.array(numbers, dtype=np.uint32)[column.codes]
        words[:, 1:] = column.tails
        return words


def _as_texts(words: Array) -> Array:
    """Return rows of words as byte strings, which numpy sorts and compares as single values."""
    return words.view(f"S{words.shape[1] * words.itemsize}").ravel()
