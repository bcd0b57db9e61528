"""`Completion`: adds information from other events of the same files to events that are read.

A file contains what its process knew when it recorded, and the analysis combines the files. Code
that processes events one by one, as analyses of DASF's events do, cannot look at other events. For
such code, each "Resource Usage" event has the last known value of each of its fields, because a
process samples some of them less often, and one process per host samples common values. Each
"Compute" event has its ``dependents``: the keys of the tasks in these files that depend on its key.
All runs of a key have the same dependents.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dasfprof.database.block_codec import Batch
from dasfprof.database.columns import KeyColumn, ListColumn, NumberColumn
from dasfprof.database.reader import TraceFile
from dasfprof.schema.events import Event

#: Prefix of fields that one process samples for its host.
_HOST_PREFIX = "host_"
#: Seconds before the first value of a field for which this value is used. Rates and CPU fractions
#: are means between two samples, so the first sample has none.
_BEFORE_FIRST = 10.0

#: A host in a run: the run's id, the host's name and its boot.
_Host = tuple[str, ...]
#: For each field: sorted times at which it is known, and its values.
_Known = dict[str, tuple[list[float], list[Any]]]
#: An event, with its position in its file.
_Placed = tuple[int, Event]


class Completion:
    """Completes the events of files that are read together.

    Only events of dasfprof's plugins are completed. Events of user code stay unchanged. Files are
    read when they are first needed. Memory is needed for the keys of all dependencies, and for the
    samples of one process and of the hosts.

    Parameters
    ----------
    paths
        The files.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = list(paths)
        self._dependents: dict[Any, dict[Any, None]] | None = None
        self._of_hosts: dict[_Host, _Known] | None = None

    def events(self, file: TraceFile) -> Iterator[Event]:
        """Yield the events of one of the files in the order in which they were recorded."""
        pending: list[_Placed] = []
        last = -1
        for sequence, events in self._batches(file):
            # Positions are interleaved among blocks that were written together. These blocks are
            # sorted by their first positions.
            if sequence and sequence[0] > last:
                yield from _in_order(pending)
                pending = []
            last = max(last, *sequence[-1:])
            pending += events
        yield from _in_order(pending)

    def _batches(self, file: TraceFile) -> Iterator[tuple[list[int], list[_Placed]]]:
        """Yield positions and completed events of each batch."""
        plugin = file.read_header().get("plugin")
        known = self._known_in(file.path) if plugin == "ResourceMonitor" else {}
        for batch in file.batches():
            events = batch.events()
            if plugin == "ResourceMonitor" and _is_usage(batch):
                _fill(batch, events, known)
            elif plugin == "TracePlugin" and _is_compute(batch):
                if self._dependents is None:
                    self._dependents = _dependents(self._paths)
                for _, event in events:
                    with suppress(TypeError):  # Not a key of Dask.
                        event.args["dependents"] = list(self._dependents.get(event.args["key"], ()))
            yield batch.sequence.tolist(), events

    def _known_in(self, path: Path) -> _Known:
        """Return the known values of a process and its host."""
        if self._of_hosts is None:
            batches_of_hosts: dict[_Host, list[Batch]] = {}
            for other in self._paths:
                host, batches = _usage_in(other)
                batches_of_hosts.setdefault(host, []).extend(batches)
            self._of_hosts = {
                host: _known_values(batches, _HOST_PREFIX)
                for host, batches in batches_of_hosts.items()
            }
        host, batches = _usage_in(path)
        return _known_values(batches) | self._of_hosts.get(host, {})


def _in_order(pending: list[_Placed]) -> Iterator[Event]:
    pending.sort(key=lambda pair: pair[0])
    for _, event in pending:
        yield event


# --- samples -------------------------------------------------------------------------------------


def _is_usage(batch: Batch) -> bool:
    return batch.name == "Resource Usage"


def _usage_in(path: Path) -> tuple[_Host, list[Batch]]:
    """Return the host that recorded a file, and the file's process samples, if any."""
    file = TraceFile(path)
    header = file.read_header()
    host = tuple(str(header.get(fact)) for fact in ("run_uuid", "host", "boot_id"))
    if header.get("plugin") != "ResourceMonitor":
        return host, []
    return host, [batch for batch in file.batches() if _is_usage(batch)]


def _known_values(batches: list[Batch], prefix: str = "") -> _Known:
    """Return the times and values of each field with this prefix, in the order of time."""
    pairs: dict[str, list[tuple[float, Any]]] = {}
    for batch in batches:
        times = batch.fields["timestamp"].to_list()
        for name, column in batch.args.items():
            if name.startswith(prefix):
                samples = zip(times, column.to_list(), strict=True)
                pairs.setdefault(name, []).extend(pair for pair in samples if _is_known(pair[1]))
    known = {}
    for name, samples_of_field in pairs.items():
        samples_of_field.sort(key=lambda pair: pair[0])
        known[name] = (
            [time for time, _ in samples_of_field],
            [value for _, value in samples_of_field],
        )
    return known


def _fill(batch: Batch, events: list[_Placed], known: _Known) -> None:
    """Fill fields that a sample lacks with the last known values, or NaN."""
    for name, column in batch.args.items():
        times, values = known.get(name, ([], []))
        missing = float("nan") if isinstance(column, NumberColumn) else None
        for _, event in events:
            if not _is_known(event.args[name]):
                index = max(bisect_right(times, event.timestamp) - 1, 0)
                has_value = bool(times) and times[index] - event.timestamp <= _BEFORE_FIRST
                event.args[name] = values[index] if has_value else missing


def _is_known(value: Any) -> bool:
    return value is not None and value == value  # noqa: PLR0124  (NaN)


# --- dependents ----------------------------------------------------------------------------------


def _is_compute(batch: Batch) -> bool:
    return batch.name == "Compute" and isinstance(batch.args.get("key"), KeyColumn)


def _dependents(paths: Iterable[Path]) -> dict[Any, dict[Any, None]]:
    """Return the keys that used each key's result, from the dependencies of all task runs."""
    dependents: dict[Any, dict[Any, None]] = {}
    for path in paths:
        file = TraceFile(path)
        if file.read_header().get("plugin") != "TracePlugin":
            continue
        for batch in filter(_is_compute, file.batches()):
            column = batch.args.get("dependencies")
            if isinstance(column, ListColumn):
                keys = batch.args["key"].to_list()
                with suppress(TypeError):  # Not a key of Dask.
                    for key, dependencies in zip(keys, column.to_list(), strict=True):
                        for dependency in dependencies:
                            dependents.setdefault(dependency, {})[key] = None
    return dependents
