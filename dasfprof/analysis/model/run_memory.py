"""What processes held while task runs went on, and the disk that workers needed for spilling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.held_results import ends_of_lives
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

# --- `memory_of_runs`: what the process of each task run held while it ran, by samples ------------

#: Seconds before a run for which a sample tells what its process held as it began.
_HOLDS = 1.0


class RunMemory(NamedTuple):
    """Bytes for each row of `Trace.tasks`; NaN where it cannot be told."""

    #: The most that its process held in a sample taken while it ran.
    highest: Array
    #: By how much that is more than what the process held before, where it had the process to
    #: itself. Memory that came and went between two samples is not in it.
    rise: Array
    #: The same of each run that was sampled twice, whatever others allocated beside it.
    rise_beside_others: Array


@once_per_trace
def memory_of_runs(run: Run) -> RunMemory:
    """Find what the process of each task run held."""
    return read_of_runs(run, run.samples)


def read_of_runs(run: Run, samples: pd.DataFrame) -> RunMemory:
    """Find what was read of the process of each task run, by ``worker_id, time, memory``."""
    tasks = run.tasks
    held = RunMemory(*(np.full(len(tasks), np.nan) for _ in RunMemory._fields))
    processes = processes_of_workers(run)
    samples = samples.reindex(columns=["worker_id", "time", "memory"]).dropna()
    samples = samples.sort_values("time", kind="stable")
    of_sample = processes[samples["worker_id"].to_numpy(dtype=np.int64)]
    times, memory = samples["time"].to_numpy(), samples["memory"].to_numpy(dtype=float)
    starts = tasks["start"].to_numpy(dtype=float)
    stops = starts + tasks["duration"].to_numpy(dtype=float)
    seen = (tasks["source"] == "worker").to_numpy() & np.isfinite(stops)
    of_run = np.where(seen, processes[tasks["worker_id"].to_numpy()], -1)
    # What had not ended, and what nobody knows the times of, may have been there all the time.
    begun, of_begun = run.under_way["since"].to_numpy(dtype=float), run.under_way["worker_id"]
    begun = np.where(np.isfinite(begun), begun, -np.inf)
    of_begun = processes[of_begun.to_numpy(dtype=np.int64)]
    for process in np.unique(of_sample):
        rows, own = np.flatnonzero(of_run == process), of_sample == process
        if not len(rows):
            continue
        alone, idle_since = _alone(starts[rows], stops[rows], begun[of_begun == process])
        first = np.searchsorted(times[own], starts[rows])
        end = np.searchsorted(times[own], stops[rows], side="right")
        highest = held.highest[rows] = _maxima(memory[own], first, end)
        # More than in the sample before the run; where another run may have changed that since, in
        # the first one of the run.
        before = np.maximum(first - 1, 0)
        at = times[own][before]
        holds = (first > 0) & (at >= idle_since) & (starts[rows] - at <= _HOLDS)
        base = np.where(holds, before, np.minimum(first, len(times[own]) - 1))
        rise = np.maximum(highest - memory[own][base], 0.0)
        rise[~np.where(holds, end > first, end > first + 1)] = np.nan
        held.rise[rows] = np.where(alone, rise, np.nan)
        held.rise_beside_others[rows] = rise
    return held


def processes_of_workers(run: Run) -> Array:
    """Number the process of each worker: several may share one."""
    known = run.workers[["host", "boot_id", "pid"]].astype(object)
    # Of one whose process is unknown nothing tells that it shares one.
    alone = np.where(known["pid"].isna(), np.arange(len(known)), -1)
    known = known.where(known.notna(), None).assign(alone=alone)
    # As tuples: pandas cannot group texts with lone surrogates.
    identities = pd.Series(list(known.itertuples(index=False, name=None)), dtype=object)
    return pd.factorize(identities)[0].astype(np.int64)


def _alone(starts: Array, stops: Array, others: Array) -> tuple[Array, Array]:
    """Return which runs had their process to themselves, and since when nothing had run before.

    Parameters
    ----------
    starts, stops
        Of the runs of a process.
    others
        When others began there that had not ended.
    """
    order = np.argsort(starts, kind="stable")
    ended = np.maximum.accumulate(np.r_[-np.inf, stops[order]])[:-1]
    nexts = np.r_[starts[order][1:], np.inf]
    first_other = others.min(initial=np.inf)
    alone, idle_since = np.empty(len(order), dtype=bool), np.empty(len(order))
    alone[order] = (ended <= starts[order]) & (stops[order] <= np.minimum(nexts, first_other))
    idle_since[order] = ended
    return alone, idle_since


def _maxima(values: Array, first: Array, end: Array) -> Array:
    """Return the largest of ``values[first:end]``; NaN of nothing."""
    padded = np.r_[values, -np.inf]
    bounds = np.column_stack([first, np.maximum(end, first)]).ravel()
    largest = np.maximum.reduceat(padded, bounds)[::2] if len(first) else np.empty(0)
    return np.where(end > first, largest, np.nan)


# --- How much of their disks the workers of a host needed for spilling, all at once ---------------


@dataclass(frozen=True)
class SpilledAtOnce:
    """The host whose workers had most on disk at a time."""

    host: str
    #: Bytes of results that its workers had on disk at once, and the most of one worker.
    peak: float
    of_one: float
    #: The least that was free on the disk to which they spill; NaN: unknown.
    free: float


def spilled_at_once(run: Run) -> SpilledAtOnce | None:
    """Find the most bytes that the workers of one host had spilled at a time; None if none had."""
    samples, workers = run.managed_memory, run.workers
    sizes = np.nan_to_num(samples["spilled_size"].to_numpy(dtype=float))
    if not sizes.max(initial=0.0) > 0:
        return None
    ids, times = samples["worker_id"].to_numpy(), samples["time"].to_numpy(dtype=float)
    # What a worker had spilled is gone with it.
    lives = np.unique(ids)
    ends = workers["last_seen"].to_numpy(dtype=float)[lives]
    ids, times = np.append(ids, lives), np.append(times, np.fmax(ends, -np.inf))
    sizes = np.append(sizes, np.zeros(len(lives)))
    hosts = workers["host"].to_numpy(dtype=object)[ids]
    peaks = {
        str(host): peak_of(ids[own], times[own], sizes[own]).size
        for host in dict.fromkeys(hosts.tolist())
        for own in [np.flatnonzero(hosts == host)]
    }
    host = max(peaks, key=lambda each: peaks[each])
    return SpilledAtOnce(host, peaks[host], float(sizes.max()), free_disk(run, host))


def free_disk(run: Run, host: str | None = None) -> float:
    """Return the least bytes that were free where workers of a host, or of any, spill; or NaN."""
    disks, hosts = run.disk_usage, run.workers["host"].to_numpy(dtype=object)
    on_host = (hosts == host if host else np.ones(len(hosts), bool))[disks["worker_id"].to_numpy()]
    there = on_host & (disks["local_directory"] == 1).to_numpy(dtype=bool)
    return float(disks["free"][there].min())


class Peak(NamedTuple):
    """The most that readings of several summed up to, and when; 0 and NaN: never more than 0."""

    size: float
    time: float


def peak_of(ids: Array, times: Array, sizes: Array) -> Peak:
    """Find the most that the last readings of all summed up to."""
    order = np.lexsort((times, ids))
    ids, times, sizes = ids[order], times[order], sizes[order]
    first = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    change = np.where(first, sizes, np.diff(sizes, prepend=0.0))
    in_time = np.argsort(times, kind="stable")
    sums = np.append(0.0, np.cumsum(change[in_time]))
    most = int(sums.argmax())
    return Peak(float(sums[most]), float(np.append(np.nan, times[in_time])[most]))


# --- Samples of what workers' processes held, on the scheduler's clock ----------------------------

#: Seconds within which a sample tells of a moment; and for which what was read of the scheduler's
#: and the client's process holds, which is read again when it changes.
NEAR, _SAMPLE_HOLDS = 2.0, 61.0


class Samples(NamedTuple):
    """Samples of workers: seconds from the trace's begin, on the scheduler's clock."""

    life: Array
    time: Array
    values: dict[str, Array]

    @classmethod
    def of(cls, run: Run, table: pd.DataFrame, *names: str, or_zero: Sequence[str] = ()) -> Samples:
        """Take the samples of a table that have all of these values, and others where they do."""
        table = table.reindex(columns=["worker_id", "time", *names, *or_zero])
        table = table.fillna(dict.fromkeys(or_zero, 0.0)).dropna()
        life = table["worker_id"].to_numpy(dtype=np.int64)
        time = run.on_one_clock(table["time"], life)
        there = time < ends_of_lives(run)[life]  # a process may outlive its worker
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
        return self.memory - self.results - self.p2p


def results_of_workers(run: Run) -> Samples:
    """Return the samples of what workers held, as Dask measures it."""
    names = "size", "spilled_size", "tasks"
    return Samples.of(run, run.managed_memory, *names, or_zero=("p2p_size",))


@once_per_trace
def memory_of_processes(run: Run) -> list[ProcessMemory]:
    """Find what each process of workers held, where samples tell of it and of its results."""
    used = Samples.of(run, run.samples, "memory")
    held = results_of_workers(run)
    processes, process = list[ProcessMemory](), processes_of_workers(run)
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
        columns = (time, memory, results, sizes["spilled_size"], sizes["p2p_size"], sizes["tasks"])
        processes.append(ProcessMemory(lives, *(column[known] for column in columns)))
    return [one for one in processes if len(one.time)]


@once_per_trace
def unmanaged_of_runs(run: Run) -> RunMemory:
    """Find what the process of each task run had beside results that were done.

    What it rises by is without inputs that came from other workers as it began.
    """
    tables = []
    for process in memory_of_processes(run):
        life = process.lives[0]
        read = {"time": process.time + run.begin + run.offsets[life], "memory": process.unmanaged}
        tables.append(pd.DataFrame({"worker_id": life, **read}))
    return read_of_runs(run, pd.concat(tables) if tables else run.samples[:0])


def _nearest(times: Array, wanted: Array) -> Array:
    """Return the place of the time nearest to each wanted one; times are in order."""
    after = np.clip(np.searchsorted(times, wanted), 0, len(times) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(wanted - times[before] <= np.abs(times[after] - wanted), before, after)


class Readings(NamedTuple):
    """What a process had when it was read now and then, in the order of time; bytes."""

    host: str
    #: Seconds from the trace's begin.
    time: Array
    memory: Array

    def at(self, time: float) -> float:
        """Return the last reading at a time; NaN: there is none, or it no longer holds."""
        last = int(np.searchsorted(self.time, time, side="right")) - 1
        holds = last >= 0 and time - self.time[last] <= _SAMPLE_HOLDS
        return float(self.memory[last]) if holds else float("nan")


@once_per_trace
def memory_of_others(run: Run) -> dict[str, Readings]:
    """Find what the processes of the scheduler and of the client had: by these words.

    Where the scheduler is in a worker's process, or the client in one of theirs, it has none of its
    own. Nor where no file tells.
    """
    workers, states, clients = run.workers, run.scheduler_states, run.clients_under_way
    known = {
        (host, pid)
        for host, pid, kind in zip(workers["host"], workers["pid"], workers["kind"], strict=True)
        if kind == "worker" and pd.notna(pid)
    }
    readings = {}
    if len(states):
        row = int(states["worker_id"].iloc[0])
        host, pid = (workers[name].iloc[row] for name in ("host", "pid"))
        if pd.notna(pid) and (host, pid) not in known:
            readings["scheduler"] = _readings(run, host, states)
            known.add((host, pid))
    if len(clients):
        host, pid = clients["host"].iloc[0], int(clients["pid"].iloc[0])
        own = (clients["host"] == host) & (clients["pid"] == pid)
        if pid >= 0 and (host, pid) not in known:
            readings["client"] = _readings(run, host, clients[own.to_numpy(dtype=bool)])
    return {name: one for name, one in readings.items() if len(one.time)}


def tasks_of_scheduler(run: Run) -> Readings | None:
    """Find how many tasks the scheduler knew that had not been forgotten; None: nothing tells."""
    states = run.scheduler_states
    if not len(states):
        return None
    counted = [sum(sum(one.values()) for one in tasks.values()) for tasks in states["tasks"]]
    host = run.workers["host"].iloc[int(states["worker_id"].iloc[0])]
    return _readings(run, host, states.assign(memory=np.array(counted, dtype=float)))


def _readings(run: Run, host: str, table: pd.DataFrame) -> Readings:
    read = table.reindex(columns=["time", "memory"]).dropna().sort_values("time", kind="stable")
    return Readings(str(host), run.since_begin(read["time"]), read["memory"].to_numpy(dtype=float))
