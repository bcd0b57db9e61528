"""Samples of what workers' processes held, on the scheduler's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.held_results import ends_of_lives
from dasfprof.analysis.model.run_memory import RunMemory, processes_of_workers, read_of_runs
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.database.columns import Array

#: Seconds within which a sample tells of a moment; and for which what was read of the scheduler's
#: and the client's process holds, which is read again when it changes.
NEAR, _HOLDS = 2.0, 61.0


class Samples(NamedTuple):
    """Samples of workers: seconds from the trace's begin, on the scheduler's clock."""

    life: Array
    time: Array
    values: dict[str, Array]

    @classmethod
    def of(
        cls, trace: Run, table: pd.DataFrame, *names: str, or_zero: Sequence[str] = ()
    ) -> Samples:
        """Take the samples of a table that have all of these values, and others where they do."""
        table = table.reindex(columns=["worker_id", "time", *names, *or_zero])
        table = table.fillna(dict.fromkeys(or_zero, 0.0)).dropna()
        life = table["worker_id"].to_numpy(dtype=np.int64)
        time = trace.on_one_clock(table["time"], life)
        there = time < ends_of_lives(trace)[life]  # a process may outlive its worker
        values = {name: table[name].to_numpy(dtype=float)[there] for name in (*names, *or_zero)}
        return cls(life[there], time[there], values)

    def nearest(self, lives: Array | Sequence[int], time: float) -> dict[str, float]:
        """Return the values in the sample of lives that is nearest to a time; NaN: none is near."""
        rows = np.flatnonzero(np.isin(self.life, lives))
        distance = np.abs(self.time[rows] - time)
        if not len(rows) or not distance.min() <= NEAR:
            return dict.fromkeys(self.values, np.nan)
        row = rows[np.argmin(distance)]
        return {name: float(values[row]) for name, values in self.values.items()}


class ProcessMemory(NamedTuple):
    """What a process of workers held at each of its samples, in the order of time; bytes."""

    #: Rows of `Trace.workers`: the workers in it.
    lives: Array
    #: Seconds from the trace's begin.
    time: Array
    memory: Array
    #: Results in memory, and spilled to disk, of all its workers.
    results: Array
    spilled: Array
    #: Rows in the buffers of P2P shuffles.
    p2p: Array
    #: How many results, both kinds together.
    number: Array

    @property
    def unmanaged(self) -> Array:
        """What it held beside results and the buffers of shuffles."""
        beside: Array = self.memory - self.results - self.p2p
        return beside


def results_of_workers(trace: Run) -> Samples:
    """Return the samples of what workers held, as Dask measures it."""
    names = "size", "spilled_size", "tasks"
    return Samples.of(trace, trace.managed_memory, *names, or_zero=("p2p_size",))


@once_per_trace
def memory_of_processes(trace: Run) -> list[ProcessMemory]:
    """Find what each process of workers held, where samples tell of it and of its results."""
    used = Samples.of(trace, trace.samples, "memory")
    held = results_of_workers(trace)
    found, process = list[ProcessMemory](), processes_of_workers(trace)
    for number in np.unique(process[used.life]).tolist():
        rows = np.flatnonzero(process[used.life] == number)
        rows = rows[np.argsort(used.time[rows], kind="stable")]
        lives, time = np.flatnonzero(process == number), used.time[rows]
        sizes = {name: np.zeros(len(rows)) for name in held.values}
        known = np.zeros(len(rows), dtype=bool)
        for life in np.intersect1d(lives, held.life).tolist():
            own = np.flatnonzero(held.life == life)
            own = own[np.argsort(held.time[own], kind="stable")]
            nearest = own[_nearest(held.time[own], time)]
            near = np.abs(held.time[nearest] - time) <= NEAR
            known |= near
            for name, values in held.values.items():
                sizes[name] += np.where(near, values[nearest], 0.0)
        results = np.maximum(sizes["size"] - sizes["spilled_size"], 0.0)
        memory = used.values["memory"][rows]
        beside = sizes["spilled_size"], sizes["p2p_size"], sizes["tasks"]
        columns = (time, memory, results, *beside)
        found.append(ProcessMemory(lives, *(column[known] for column in columns)))
    return [one for one in found if len(one.time)]


@once_per_trace
def unmanaged_of_runs(trace: Run) -> RunMemory:
    """Find what the process of each task run had beside results that were done.

    What it rises by is without inputs that came from other workers as it began.
    """
    offsets = trace.offsets
    tables = [
        pd.DataFrame(
            {
                "worker_id": one.lives[0],
                "time": one.time + trace.begin + offsets[one.lives[0]],
                "memory": one.unmanaged,
            }
        )
        for one in memory_of_processes(trace)
    ]
    return read_of_runs(trace, pd.concat(tables) if tables else trace.samples[:0])


def _nearest(times: Array, wanted: Array) -> Array:
    """Return the place of the time nearest to each wanted one; times are in order."""
    after = np.clip(np.searchsorted(times, wanted), 0, len(times) - 1)
    before = np.maximum(after - 1, 0)
    closer = wanted - times[before] <= np.abs(times[after] - wanted)
    places: Array = np.where(closer, before, after)
    return places


class Readings(NamedTuple):
    """What a process had when it was read now and then, in the order of time; bytes."""

    host: str
    #: Seconds from the trace's begin.
    time: Array
    memory: Array

    def at(self, time: float) -> float:
        """Return the last reading at a time; NaN: there is none, or it no longer holds."""
        last = int(np.searchsorted(self.time, time, side="right")) - 1
        holds = last >= 0 and time - self.time[last] <= _HOLDS
        return float(self.memory[last]) if holds else float("nan")


@once_per_trace
def memory_of_others(trace: Run) -> dict[str, Readings]:
    """Find what the processes of the scheduler and of the client had: by these words.

    Where the scheduler is in a worker's process, or the client in one of theirs, it has none of its
    own. Nor where no file tells.
    """
    workers, states, clients = trace.workers, trace.scheduler_states, trace.clients_under_way
    known = {
        (host, pid)
        for host, pid, kind in zip(workers["host"], workers["pid"], workers["kind"], strict=True)
        if kind == "worker" and pd.notna(pid)
    }
    found = {}
    if len(states):
        host, pid = workers[["host", "pid"]].iloc[int(states["worker_id"].iloc[0])]
        if pd.notna(pid) and (host, pid) not in known:
            found["scheduler"] = _readings(trace, host, states)
            known.add((host, pid))
    if len(clients) and {"host", "pid"} <= set(clients.columns):
        host, pid = clients["host"].iloc[0], int(clients["pid"].iloc[0])
        own = (clients["host"] == host) & (clients["pid"] == pid)
        if pid >= 0 and (host, pid) not in known:
            found["client"] = _readings(trace, host, clients[own.to_numpy(dtype=bool)])
    return {name: one for name, one in found.items() if len(one.time)}


def tasks_of_scheduler(trace: Run) -> Readings | None:
    """Find how many tasks the scheduler knew that had not been forgotten; None: nothing tells."""
    states = trace.scheduler_states.reindex(columns=["worker_id", "time", "tasks"])
    if not len(states):
        return None
    counted = [sum(sum(one.values()) for one in tasks.values()) for tasks in states["tasks"]]
    host = trace.workers["host"].iloc[int(states["worker_id"].iloc[0])]
    return _readings(trace, host, states.assign(memory=np.array(counted, dtype=float)))


def _readings(trace: Run, host: str, table: pd.DataFrame) -> Readings:
    read = table.reindex(columns=["time", "memory"]).dropna().sort_values("time", kind="stable")
    time = trace.since_begin(read["time"])
    return Readings(str(host), time, read["memory"].to_numpy(dtype=float))
