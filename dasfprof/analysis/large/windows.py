"""`WindowedFile`: a trace file that is read in time windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.columns import as_list_column, to_numbers, to_times
from dasfprof.analysis.trace.reader import TraceReader
from dasfprof.database import EventDatabase, FileDatabase
from dasfprof.database.blocks import Batch, split_names
from dasfprof.database.columns import Array, Column, DictionaryColumn, NumberColumn
from dasfprof.database.reader import TraceFile
from dasfprof.schema.tasks import COMPUTE, RESULT_RELEASED, TASK_RUN, TRANSFER

#: Kinds of events that occur very often in a run.
_MANY = {(kind.phase, kind.name) for kind in (COMPUTE, TASK_RUN, TRANSFER)}


#: Number of task runs and transfers for which one start time is stored. Windows are cut at these
#: times.
_EACH = 50


class Window(NamedTuple):
    """A time window. The last window of a run has no end."""

    begin: float
    #: End of the window, exclusive.
    end: float

    def has(self, times: Array) -> Array:
        """Return a mask of the times in the window. The first window also has unknown times."""
        times = np.where(np.isnan(times), -np.inf, times)
        return (times >= self.begin) & (times < self.end)

    def widened(self, seconds: float) -> Window:
        """Return the window, extended by a number of seconds at both ends."""
        return Window(self.begin - seconds, self.end + seconds)


@dataclass(frozen=True)
class WindowedFile:
    """The contents of a scanned trace file.

    Parameters
    ----------
    source
        The file, after it was read.
    other_batches
        Batches that belong to every window. The first of them name all workers, but have no rows.
        Then follow all batches of the file except those of task runs and transfers.
    stretches
        Start and end of each byte range that contains task runs or transfers.
    spans
        For each byte range, start of the first event and end of the last event, by the clock of the
        process that recorded them.
    begins
        Start time of every 50th task run or transfer (see `_EACH`).
    of_workers, of_scheduler
        Number of task runs and transfers in a worker's file, and number of task runs in the
        scheduler's file.
    unknown_inputs
        Number of task runs whose input size was not recorded and must be computed from the sizes of
        their dependencies.
    """

    source: TraceFile
    other_batches: list[Batch]
    stretches: Array
    spans: Array
    begins: Array
    of_workers: int
    of_scheduler: int
    unknown_inputs: int

    @classmethod
    def scan(cls, source: TraceFile) -> WindowedFile:
        """Scan a trace file.

        Raises
        ------
        SourceNotFoundError, NotATraceError
            If the file does not exist or is not a trace.
        """
        other_batches, sampled, workers = list[Batch](), [np.empty(0)], _Workers()
        stretches, spans = list[tuple[int, int]](), list[tuple[float, float]]()
        unknown = of_workers = of_scheduler = 0
        for batch in chain.from_iterable(map(split_names, source.batches())):
            if batch.name == RESULT_RELEASED.name:
                # There are as many of these events as task runs, and analyses in windows do not
                # need them.
                continue
            if (batch.phase, batch.name) not in _MANY:
                other_batches.append(batch)
            elif batch.rows:
                workers.add(batch)
                begins, ends = _spans(batch)
                stretches.append(source.frame)
                spans.append((begins.min(), ends.max()))
                sampled.append(begins[::_EACH])
                if batch.name == TASK_RUN.name:
                    of_scheduler += batch.rows
                else:
                    of_workers += batch.rows
                unknown += _unknown_inputs(batch) if batch.name == COMPUTE.name else 0
        return cls(
            source,
            [*workers.named(), *other_batches],
            np.array(stretches, dtype=np.int64).reshape(-1, 2),
            np.array(spans).reshape(-1, 2),
            np.concatenate(sampled),
            of_workers,
            of_scheduler,
            unknown,
        )

    def many(self, window: Window) -> Iterator[Batch]:
        """Yield the task runs and transfers that overlap a window."""
        inside = (self.spans[:, 0] < window.end) & (self.spans[:, 1] >= window.begin)
        # A byte range has several entries if it contains several kinds of events.
        stretches = list(dict.fromkeys(map(tuple, self.stretches[inside].tolist())))
        file = replace(self.source, byte_ranges=stretches)
        for batch in chain.from_iterable(map(split_names, file.batches())):
            if (batch.phase, batch.name) in _MANY:
                begins, ends = _spans(batch)
                rows = np.flatnonzero((begins < window.end) & (ends >= window.begin))
                yield batch if len(rows) == batch.rows else batch.take(rows)


def cut_into_windows(files: Sequence[WindowedFile], count: int) -> list[Window]:
    """Cut the time of a run into windows with about the same number of task runs and transfers."""
    begins = np.sort(np.concatenate([file.begins for file in files]))
    begins = begins[np.isfinite(begins)]
    edges = np.unique(begins[np.arange(1, count) * len(begins) // count] if len(begins) else begins)
    return list(map(Window, [-np.inf, *edges.tolist()], [*edges.tolist(), np.inf]))


def read_window(files: Sequence[WindowedFile], window: Window | None) -> Run:
    """Read the small tables of a run, and the rows of its large tables that overlap `window`.

    If `window` is None, read only the small tables.
    """
    databases: list[EventDatabase] = [_WindowDatabase(_WindowFile(file, window)) for file in files]
    return Run.from_reader(TraceReader(databases, progress=False))


class _WindowFile(TraceFile):
    """A time window of a trace file, in the form of a trace file."""

    def __init__(self, file: WindowedFile, wanted: Window | None) -> None:
        super().__init__(**deepcopy(vars(file.source)))  # Readers may add to this list.
        self._windowed, self._wanted = file, wanted

    def batches(self) -> Iterator[Batch]:
        """Yield the batches with events of the window, and those of small tables."""
        yield from self._windowed.other_batches
        if self._wanted is not None:
            yield from self._windowed.many(self._wanted)


class _WindowDatabase(FileDatabase):
    """A time window of a trace file, in the form of a database for `TraceReader`."""

    def __init__(self, file: TraceFile) -> None:
        self._file, self.window = file, file.window

    def trace_file(self) -> TraceFile:
        return self._file


class _Workers:
    """Collects the workers of task runs and transfers, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], dict[tuple[str, str], tuple[Any, Any]]] = {}
        self._addresses: dict[str, Any] = {}

    def add(self, batch: Batch) -> None:
        """Add the workers that a batch names."""
        names = self._names.setdefault((batch.phase, batch.name), {})
        hosts, labels = (batch.fields.get(name) for name in ("process_id", "thread_id"))
        # Such a batch was not written by dasfprof's plugins.
        if len(_entries(hosts)) > 1 or len(_entries(labels)) > 1:
            pairs = zip(_items(hosts, batch.rows), _items(labels, batch.rows), strict=True)
        else:
            pairs = zip(_entries(hosts), _entries(labels), strict=True)
        for host, label in pairs:
            names.setdefault((str(host), str(label)), (host, label))
        if batch.name == TASK_RUN.name and "worker" in batch.args:
            for address in _entries(batch.args["worker"]):
                self._addresses.setdefault(str(address), address)

    def named(self) -> Iterator[Batch]:
        """Yield batches that name all workers but have no rows."""
        # If every window begins with these batches, workers get the same ids in all windows.
        none = np.empty(0, dtype=np.int64)
        times = dict.fromkeys(("timestamp", "duration"), NumberColumn(np.empty(0)))
        args: dict[str, Column] = {"worker": DictionaryColumn(none, list(self._addresses.values()))}
        for (phase, name), pairs in self._names.items():
            for host, label in pairs.values():
                who = {
                    "process_id": DictionaryColumn(none, [host]),
                    "thread_id": DictionaryColumn(none, [label]),
                }
                named = args if name == TASK_RUN.name else {}
                yield Batch(phase, name, 0, none, {**times, **who}, named)


def _entries(column: Column | None) -> list[Any]:
    """Return the distinct entries of a dictionary column, or all values of another column.

    If there is no column, the only value is None.
    """
    if column is None:
        return [None]
    return column.entries if isinstance(column, DictionaryColumn) else column.to_list()


def _items(column: Column | None, rows: int) -> list[Any]:
    return [None] * rows if column is None else column.to_list()


def _spans(batch: Batch) -> tuple[Array, Array]:
    """Return the start and the end of each event, or minus infinity and infinity if unknown."""
    begins = to_times(batch.fields["timestamp"])
    ends = np.fmax(begins, begins + to_times(batch.fields["duration"]))
    if batch.name == TASK_RUN.name and "start" in batch.args:
        # A task run starts when its function starts.
        starts = to_times(batch.args["start"])
        begins = np.where(np.isnan(starts), begins, np.fmin(starts, ends))
    return np.nan_to_num(begins, nan=-np.inf), np.nan_to_num(ends, nan=np.inf)


def _unknown_inputs(batch: Batch) -> int:
    """Return the number of task runs whose worker did not record the size of their inputs."""
    if "dependencies" not in batch.args:
        return 0
    unknown = np.diff(as_list_column(batch.args["dependencies"]).offsets) > 0
    if "input_size" in batch.args:
        unknown &= np.isnan(to_numbers(batch.args["input_size"]))
    return int(np.count_nonzero(unknown))
