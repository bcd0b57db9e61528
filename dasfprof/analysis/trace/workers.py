"""The workers of a trace, and the worker ids by which other tables refer to them.

A *worker id* is a row of `Trace.workers`: one worker instance. A worker instance is identified by
its host, its label and, if the header of its file contains the address, its address. A worker that
a nanny restarted keeps its label and gets a new row. Tables for users combine all worker instances
with the same label on a host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.trace.columns import make_categorical
from dasfprof.database.blocks import Batch
from dasfprof.database.columns import Array, Column, DictionaryColumn, NumberColumn, repeated
from dasfprof.schema.resources import MEMORY_SIZES

#: Labels of events about a host. The ``thread_id`` of an event is "0" if its recorder did not set
#: it.
HOST_WIDE = ("", "0")

#: Fields of `Worker` that are copied from a header if they have the given type.
_FACTS = {"thread_limits": dict, "memory_group": str, "cpu_group": str, "started": float}
#: Types of columns of `Trace.workers`, by the annotation of the field of `Worker`.
_TYPES = {"float": float, "float | None": float, "int | None": "Int64"}


@dataclass
class Worker:
    """A worker instance."""

    host: str
    #: ``worker-{host}-{name}`` in files of dasfprof and DASF, or the ``thread_id`` of the event.
    label: str
    #: Address of the worker on the scheduler, or None if no header contains it.
    address: str | None = None
    name: Any = None
    nthreads: int | None = None
    #: Memory limit in bytes, or None if unknown or if there is no limit.
    memory_limit: float | None = None
    #: The sizes `MEMORY_SIZES` in the worker's files, by name. 0 means "never", or "no limit".
    memory_sizes: dict[str, float] = field(default_factory=dict)
    #: Environment variables that limit the threads of libraries, or None if not recorded.
    thread_limits: dict[str, str] | None = None
    #: Environment variables that identify the worker's job, or None.
    job: dict[str, str] | None = None
    #: Control group that limits the memory of the worker's process, and the limit in bytes. None if
    #: unknown.
    memory_group: str | None = None
    group_limit: float | None = None
    #: Control group that limits the CPU of the worker's process, the limit in cores, and the
    #: maximum number of open files of the process. None if unknown.
    cpu_group: str | None = None
    cpu_quota: float | None = None
    descriptor_limit: float | None = None
    #: Start of the worker's process in Unix seconds by its host's clock, or None if not recorded.
    started: float | None = None
    boot_id: str | None = None
    pid: int | None = None
    #: Whether each of the worker's files was closed.
    closed: list[bool] = field(default_factory=list)
    #: Names of the plugins that wrote files of this worker.
    plugins: set[str] = field(default_factory=set)
    #: Whether one of the worker's files records slow serializing.
    serialising: bool = False
    #: Time at which the worker joined the cluster, or at which recording started, in Unix seconds
    #: by the scheduler's clock.
    joined: float | None = None
    #: Time at which the worker left, and the reason that the scheduler recorded.
    left: float | None = None
    left_reason: str | None = None
    #: Amount of each resource that tasks may request, or None if unknown.
    resources: dict[str, float] | None = None
    #: Exit code of the worker's process, or NaN if unknown. A negative number is a signal.
    exit_code: float = np.nan
    #: Reason why the nanny ended the worker.
    exit_reason: str | None = None
    #: Seconds since the last heartbeat, if the scheduler removed the worker because it sent none.
    silent: float = np.nan
    #: Last error that Dask logged in the worker's process outside of task runs, and its time.
    last_error: str | None = None
    last_error_time: float = np.nan
    #: Time of the worker's earliest event, and of its latest event.
    first_seen: float = np.nan
    last_seen: float = np.nan

    @property
    def kind(self) -> str:
        """``worker``, ``scheduler``, or ``host`` for events of a host that belong to no worker."""
        if self.label == "scheduler" and self.address is None:
            return "scheduler"
        return "worker" if self.label else "host"

    def add_process(self, header: dict[str, Any]) -> None:
        """Add facts about the worker's process, from the header of a file that it wrote."""
        pid, job = header.get("pid"), header.get("job")
        self.boot_id, self.pid = header.get("boot_id"), pid if isinstance(pid, int) else None
        self.job = {str(x): str(job[x]) for x in job} if isinstance(job, dict) else None


#: Fields of `Worker` that are columns of `Trace.workers`.
_FIELDS = [each for each in fields(Worker) if each.name not in ("label", "plugins", "serialising")]


class WorkerRegister:
    """Assigns an id to each worker when the first event about it is read."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._ids: dict[tuple[str, str, str | None], int] = {}
        self._ids_by_address: dict[str, int] = {}

    def id_of(self, host: str, label: str, address: str | None = None) -> int:
        """Return the id of a worker, which is a new id if the worker is not known yet."""
        identity = host, label, address
        number = self._ids.setdefault(identity, len(self.workers))
        if number == len(self.workers):
            self.workers.append(Worker(*identity))
            if address is not None:
                self._ids_by_address.setdefault(address, number)
        return number

    def id_of_address(self, address: str) -> int:
        """Return the id of the worker at an address."""
        number = self._ids_by_address.get(address)
        # If no file names this worker, its address becomes its label.
        return self.id_of("", address, address) if number is None else number

    def add_header(self, header: dict[str, Any]) -> int | None:
        """Add what a file's header contains about its process, and return the worker's id.

        The result is None if the process is not a worker.
        """
        facts, host = header.get("worker"), str(header.get("host", ""))
        if not isinstance(facts, dict):
            if header.get("plugin") == "SchedulerPlugin":
                self.workers[self.id_of(host, "scheduler")].add_process(header)
            return None
        label, address = facts.get("label"), facts.get("address")
        number = self.id_of(host, _text(label), None if address is None else str(address))
        worker = self.workers[number]
        worker.name = facts.get("name")
        worker.nthreads = facts.get("nthreads")
        worker.memory_limit = facts.get("memory_limit") or None
        worker.memory_sizes = {
            name: facts[name]
            for name in MEMORY_SIZES
            if isinstance(facts.get(name), int | float) and facts[name] >= 0
        }
        for name, kind in _FACTS.items():
            if isinstance(facts.get(name), kind):
                setattr(worker, name, facts[name])
        if worker.memory_group is not None:
            worker.group_limit = facts.get("group_limit", worker.group_limit)
        for name in ("cpu_quota", "descriptor_limit"):
            if isinstance(facts.get(name), int | float) and facts[name] > 0:
                setattr(worker, name, float(facts[name]))
        worker.add_process(header)
        worker.plugins.add(str(header.get("plugin", "")))
        worker.serialising |= header.get("serialising") is True
        return number

    def ids_of(self, batch: Batch, owner: int | None) -> Array:
        """Return the worker id of each row of a batch.

        `owner` is the id of the worker that wrote the file of the batch, or None if no worker wrote
        it.
        """
        hosts, host_codes = _entries(batch.fields.get("process_id"))
        labels, label_codes = _entries(batch.fields.get("thread_id"))
        if len(hosts) == len(labels) == 1:
            return repeated(np.int32(self._number(hosts[0], labels[0], owner)), batch.rows)
        pairs = host_codes * len(labels) + label_codes
        numbers = np.full(len(hosts) * len(labels), -1, dtype=np.int32)
        for pair in np.flatnonzero(np.bincount(pairs, minlength=len(numbers))).tolist():
            host, label = divmod(pair, len(labels))
            numbers[pair] = self._number(hosts[host], labels[label], owner)
        return numbers[pairs]

    def _number(self, host: str, label: str, owner: int | None) -> int:
        if owner is not None:
            worker = self.workers[owner]
            if (worker.host, worker.label) == (host, label):
                return owner
        return self.id_of(host, label)

    def names_of(self, ids: Array, name: Literal["host", "label"]) -> pd.Categorical:
        """Return the host or the label of each worker id, which is NA for the id -1."""
        names = np.array([getattr(worker, name) for worker in self.workers], dtype=object)
        codes, distinct = pd.factorize(names)
        return make_categorical(np.append(codes, -1).astype(np.int32)[ids], list(distinct))

    def name_hosts(self) -> None:
        """Set the hosts of workers without files, as far as these hosts are known."""
        # A host is known if other workers at the same host address have files.
        named: dict[str, set[str]] = {}
        for worker in self.workers:
            if worker.plugins and worker.address:
                named.setdefault(_host_in(worker.address), set()).add(worker.host)
        for worker in self.workers:
            hosts = named.get(_host_in(worker.address or ""), set())
            if not worker.plugins and len(hosts) == 1:
                worker.host = next(iter(hosts))

    def table(self) -> pd.DataFrame:
        """Return the workers as a table (see `Trace.workers`)."""
        rows = [
            {
                **{name: size or None for name, size in worker.memory_sizes.items()},
                **vars(worker),
                "worker": worker.label,
                "kind": worker.kind,
                "closed": all(worker.closed) if worker.closed else None,
            }
            for worker in self.workers
        ]
        types: dict[str, Any] = {each.name: _TYPES.get(str(each.type), object) for each in _FIELDS}
        types |= {"worker": object, "kind": object, "closed": "boolean"}
        types |= dict.fromkeys(MEMORY_SIZES, float)
        table = {
            name: pd.Series([row.get(name) for row in rows], dtype=kind)
            for name, kind in types.items()
        }
        return pd.DataFrame(table).rename_axis(index="worker_id")


def _entries(column: Column | None) -> tuple[list[str], Array]:
    """Return the distinct texts of a column, and for each row the index of its text."""
    if column is None:
        return [""], np.zeros(1, dtype=np.int64)
    if isinstance(column, DictionaryColumn):
        return [_text(entry) for entry in column.entries], column.codes.astype(np.int64)
    items = column.array if isinstance(column, NumberColumn) else np.array(column.to_list(), object)
    codes, distinct = pd.factorize(items)
    return [_text(item) for item in distinct.tolist()] or [""], codes


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _host_in(address: str) -> str:
    """Return the host part of an address, between its protocol and its port."""
    return address.rpartition("://")[2].rpartition(":")[0]


def with_owners(
    table: pd.DataFrame, hosts: Iterable[str], run: set[tuple[str, int]]
) -> pd.DataFrame:
    """Add the column ``ours`` (whether a process belongs to the run) to "Host Process" events.

    `hosts` contains the host of each row. `run` contains the host and process id of the processes
    that wrote files.
    """
    lines = []  # Each entry is a process, followed by its ancestors.
    for host, pid, above in zip(hosts, table["pid"].tolist(), table["ancestors"], strict=True):
        lines.append([(host, each) for each in (pid, *(above if isinstance(above, tuple) else ()))])
    # A process belongs to the run if it wrote a file of the run, or if it is a descendant or an
    # ancestor of a process that wrote one. The worker that samples the processes of its host always
    # has a row in the table, so its ancestors are known.
    ancestors = {process for line in lines if line[0] in run for process in line}
    ours = [line[0] in ancestors or not run.isdisjoint(line) for line in lines]
    return table.assign(ours=np.array(ours, dtype=bool))


#: Seconds for which a sample of a host is valid. Samples are taken once per second.
_HOLDS = 5.0


def with_host_readings(samples: pd.DataFrame, hosts: Array) -> pd.DataFrame:
    """Copy the latest values of each host to the samples of all workers on the host.

    `hosts` contains the code of the host of each sample. The new column ``host_read`` is 1 for
    samples of the worker that sampled the host.
    """
    # One worker of each host samples these columns. They are NaN for all other workers.
    names = [name for name in samples if str(name).startswith("host_")]
    read = samples[names].notna().any(axis=1).to_numpy(dtype=bool)
    samples = samples.assign(host_read=read.astype(float))
    times = samples["time"].to_numpy(dtype=float)
    order = np.lexsort((times, hosts))
    # For each row, the last row before it that contains a sample of its host.
    last = pd.Series(order).where(read[order]).groupby(hosts[order]).ffill().dropna()
    rows, source = order[last.index], last.to_numpy(dtype=np.int64)
    filled = ~read[rows] & (times[rows] - times[source] <= _HOLDS)
    rows, source = rows[filled], source[filled]
    for name in names if len(rows) else ():
        values = samples[name].to_numpy().copy()
        values[rows] = values[source]
        samples[name] = values
    return samples


#: Timestamps below this number (January 2004 as Unix time) are times since boot.
_EARLIEST_UNIX = float(1 << 30)
#: Boot times are rounded to the resolution of float64 Unix times, so that differences stay exact.
_GRID = float(1 << 22)


def boot_times(hosts: Array, times: Array, unix_times: Array, count: int) -> Array | None:
    """Return when hosts booted, from events with a Unix time and a timestamp that counts from boot.

    Parameters
    ----------
    hosts, times, unix_times
        The code of each event's host, its timestamp, and the Unix time that it contains.
    count
        Number of hosts.

    Returns
    -------
    array or None
        Unix time at which each host booted. None if no timestamp is a time since boot.
    """
    since_boot = (times < _EARLIEST_UNIX) & (unix_times >= _EARLIEST_UNIX)
    if not since_boot.any():
        return None
    # The median hardly changes if a clock is set during the run.
    boots = pd.Series(unix_times - times)[since_boot].groupby(hosts[since_boot]).median()
    # Hosts without such events get the median of the other hosts.
    boots = boots.reindex(range(count), fill_value=boots.median())
    return np.round(boots.to_numpy() * _GRID) / _GRID


def to_unix(times: Array, boots: Array) -> Array:
    """Convert times since boot to Unix time, and leave Unix times unchanged.

    `boots` is the boot time of the host of each row.
    """
    return np.where(times < _EARLIEST_UNIX, times + boots, times)
