"""`Completion`: adds facts from other events of the same files to the events that are read.

Code that processes events one by one, such as analyses for DASF's events, cannot look at other
events. For such code, each "Compute" event gets ``dependents``: the keys of the tasks in these
files that depend on the event's key. All task runs of a key have the same dependents. If numbers
are missing in a "Resource Usage" event, they become NaN. Numbers are missing because a process
samples some of them less often, and because only one process per host samples the values of the
host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dasfprof.database.blocks import Batch
from dasfprof.database.columns import KeyColumn, ListColumn, NumberColumn
from dasfprof.database.reader import TraceFile
from dasfprof.schema.events import Event

#: The position of an event in its file, and the event.
_Placed = tuple[int, Event]


class Completion:
    """Completes the events of dasfprof's plugins in files that are read together."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        # Set when dependents are first needed. It holds the keys of all dependencies in memory.
        self._dependents: dict[Any, dict[Any, None]] | None = None

    def events(self, file: TraceFile) -> Iterator[Event]:
        """Yield the events of one of the files in the order in which they were recorded."""
        pending: list[_Placed] = []
        last = -1
        for sequence, events in self._batches(file):
            # The positions of blocks that were written together are interleaved. These blocks are
            # sorted by their first positions.
            if sequence and sequence[0] > last:
                yield from _in_order(pending)
                pending = []
            last = max(last, *sequence[-1:])
            pending += events
        yield from _in_order(pending)

    def _batches(self, file: TraceFile) -> Iterator[tuple[list[int], list[_Placed]]]:
        """Yield, for each batch of a file, the positions of its events and its completed events."""
        plugin = file.read_header().get("plugin")
        for batch in file.batches():
            events = batch.events()
            if plugin == "ResourceMonitor" and batch.name == "Resource Usage":
                numbers = [
                    n for n, column in batch.args.items() if isinstance(column, NumberColumn)
                ]
                for _, event in events:
                    unknown = (name for name in numbers if event.args[name] is None)
                    event.args.update(dict.fromkeys(unknown, float("nan")))
            elif plugin == "TracePlugin" and _is_compute(batch):
                if self._dependents is None:
                    self._dependents = _dependents(self._paths)
                for _, event in events:
                    with suppress(TypeError):  # An unhashable value is not a key of Dask.
                        event.args["dependents"] = list(self._dependents.get(event.args["key"], ()))
            yield batch.sequence.tolist(), events


def _in_order(pending: list[_Placed]) -> Iterator[Event]:
    pending.sort(key=lambda pair: pair[0])
    for _, event in pending:
        yield event


def _is_compute(batch: Batch) -> bool:
    return batch.name == "Compute" and isinstance(batch.args.get("key"), KeyColumn)


def _dependents(paths: Iterable[Path]) -> dict[Any, dict[Any, None]]:
    """Return the dependents of each key, from the dependencies of all task runs in files."""
    dependents: dict[Any, dict[Any, None]] = {}
    for path in paths:
        file = TraceFile(path)
        if file.read_header().get("plugin") != "TracePlugin":
            continue
        for batch in filter(_is_compute, file.batches()):
            column = batch.args.get("dependencies")
            if isinstance(column, ListColumn):
                keys = batch.args["key"].to_list()
                with suppress(TypeError):  # An unhashable value is not a key of Dask.
                    for key, dependencies in zip(keys, column.to_list(), strict=True):
                        for dependency in dependencies:
                            dependents.setdefault(dependency, {})[key] = None
    return dependents
