"""Memory of processes during task runs, and disk space that workers used for spilling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasfprof.analysis.model.held_results import ends_of_lives
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Maximum seconds between a sample and the later start of a task run, so that the sample counts as
#: the memory before this task run.
_HOLDS = 1.0


class RunMemory(NamedTuple):
    """Memory in bytes for each row of `Trace.tasks`, or NaN if unknown."""

    #: Maximum memory of the task run's process in samples during the task run.
    highest: Array
    #: Difference between this maximum and the memory of the process before, for task runs that were
    #: alone in their process. Memory that was allocated and freed between two samples is not
    #: included.
    rise: Array
    #: The same difference for every task run with two samples. It includes memory that other task
    #: runs in the process allocated.
    rise_beside_others: Array


@once_per_trace
def memory_of_runs(run: Run) -> RunMemory:
    """Return the memory of the worker's process during each task run, and how much it rose."""
    return read_of_runs(run, run.samples)


def read_of_runs(run: Run, samples: pd.DataFrame) -> RunMemory:
    """Return the memory of the worker's process during each task run, and how much it rose.

    `samples` are samples of memory, with the columns ``worker_id, time, memory``.
    """
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
    # Unfinished task runs, and task runs of unknown times, may have run in the process at any time.
    since, since_of = run.under_way["since"].to_numpy(dtype=float), run.under_way["worker_id"]
    since = np.where(np.isfinite(since), since, -np.inf)
    since_of = processes[since_of.to_numpy(dtype=np.int64)]
    for process in np.unique(of_sample):
        rows, selected = np.flatnonzero(of_run == process), of_sample == process
        alone, idle_since = _alone(starts[rows], stops[rows], since[since_of == process])
        first = np.searchsorted(times[selected], starts[rows])
        end = np.searchsorted(times[selected], stops[rows], side="right")
        highest = held.highest[rows] = _maxima(memory[selected], first, end)
        # The rise is measured from the last sample before the task run. If another task run may
        # have changed the memory since that sample, it is measured from the first sample during the
        # task run.
        before = np.maximum(first - 1, 0)
        at = times[selected][before]
        holds = (first > 0) & (at >= idle_since) & (starts[rows] - at <= _HOLDS)
        base = np.where(holds, before, np.minimum(first, len(times[selected]) - 1))
        rise = np.maximum(highest - memory[selected][base], 0.0)
        rise[~np.where(holds, end > first, end > first + 1)] = np.nan
        held.rise[rows] = np.where(alone, rise, np.nan)
        held.rise_beside_others[rows] = rise
    return held


def processes_of_workers(run: Run) -> Array:
    """Return the code of each worker's process. Workers in the same process have the same code."""
    known = run.workers[["host", "boot_id", "pid"]].astype(object)
    # If the process of a worker is unknown, assume that no other worker runs in it.
    alone = np.where(known["pid"].isna(), np.arange(len(known)), -1)
    known = known.where(known.notna(), None).assign(alone=alone)
    # As tuples, because pandas cannot group texts with lone surrogates.
    identities = pd.Series(list(known.itertuples(index=False, name=None)), dtype=object)
    return pd.factorize(identities)[0].astype(np.int64)


def _alone(starts: Array, stops: Array, others: Array) -> tuple[Array, Array]:
    """Return a mask of task runs that were alone in their process, and when earlier ones had ended.

    For each task run, the second array contains the latest end of the task runs that started before
    it, or minus infinity if there are none. `others` are the starts of unfinished task runs in this
    process.
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
    """Return the maximum of each slice ``values[first:end]``, or NaN if the slice is empty."""
    padded = np.r_[values, -np.inf]
    bounds = np.column_stack([first, np.maximum(end, first)]).ravel()
    largest = np.maximum.reduceat(padded, bounds)[::2] if len(first) else np.empty(0)
    return np.where(end > first, largest, np.nan)


def free_disk(run: Run) -> float:
    """Return the minimum free bytes on the disks to which workers spill, or NaN if unknown."""
    local = (run.disk_usage["local_directory"] == 1).to_numpy(dtype=bool)
    return float(run.disk_usage["free"][local].min())


def time_of_peak(ids: Array, times: Array, sizes: Array) -> float:
    """Return when the sum of several series first reaches its maximum, or NaN if that is 0.

    `ids` is the series of each sample. A series keeps the value of a sample until its next sample.
    """
    order = np.lexsort((times, ids))
    ids, times, sizes = ids[order], times[order], sizes[order]
    first = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    change = np.where(first, sizes, np.diff(sizes, prepend=0.0))
    in_time = np.argsort(times, kind="stable")
    sums = np.append(0.0, np.cumsum(change[in_time]))
    return float(np.append(np.nan, times[in_time])[sums.argmax()])


#: Maximum seconds between a sample and a time for which it is used. Then maximum age in seconds of
#: samples of the scheduler's and the client's process, which are taken again when a value changes.
_NEAR, _SAMPLE_HOLDS = 2, 61.0


def samples_of_workers(run: Run, table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return the samples with known values of all columns `names`, sorted by time.

    The other columns are ``life`` (row of `Trace.workers`) and ``time`` (seconds since the start of
    the run).
    """
    table = table.reindex(columns=["worker_id", "time", *names]).dropna()
    life = table["worker_id"].to_numpy(dtype=np.int64)
    time = run.on_one_clock(table["time"], life)
    samples = table[names].astype(float).assign(life=life, time=time)
    samples = samples[time < ends_of_lives(run)[life]]  # A process may outlive its worker.
    return samples.sort_values("time", kind="stable", ignore_index=True)


def nearest_sample(samples: pd.DataFrame, lives: Sequence[int] | Array, time: float) -> pd.Series:
    """Return the sample of any worker in `lives` nearest to `time`, or NaN if no sample is near."""
    samples = samples[samples["life"].isin(lives)]
    distance = (samples["time"] - time).abs()
    if not distance.min() <= _NEAR:
        return pd.Series(np.nan, index=samples.columns)
    return samples.iloc[int(distance.to_numpy().argmin())]


class ProcessMemory(NamedTuple):
    """Memory in bytes of a process that contains workers, one value per sample, sorted by time."""

    #: Rows of `Trace.workers` of the workers in this process.
    lives: Array
    #: Seconds since the start of the run.
    time: Array
    memory: Array
    #: Bytes of results in memory, and of results spilled to disk, of all workers in this process.
    results: Array
    spilled: Array
    #: Bytes in the buffers of P2P shuffles.
    p2p: Array
    #: Number of results, in memory or spilled.
    number: Array

    @property
    def unmanaged(self) -> Array:
        """Memory that neither results nor the buffers of shuffles use."""
        return self.memory - self.results - self.p2p


#: Columns of `results_of_workers`: bytes of all results and of spilled ones, number of results, and
#: bytes in the buffers of P2P shuffles.
_RESULTS = ["size", "spilled_size", "tasks", "p2p_size"]


def results_of_workers(run: Run) -> pd.DataFrame:
    """Return samples over time of the results that each worker held, as Dask measures them."""
    return samples_of_workers(run, run.managed_memory.fillna({"p2p_size": 0.0}), _RESULTS)


@once_per_trace
def memory_of_processes(run: Run) -> list[ProcessMemory]:
    """Return the memory of each process that contains workers and has samples."""
    process = processes_of_workers(run)
    used = samples_of_workers(run, run.samples, ["memory"])
    used["process"] = process[used.pop("life")]
    workers = pd.DataFrame({"process": process, "life": np.arange(len(process))})
    # One row per sample and worker in its process, sorted by time.
    pairs = used.reset_index().merge(workers, "left", on="process")
    near = pd.merge_asof(
        pairs, results_of_workers(run), "time", by="life", direction="nearest", tolerance=_NEAR
    )
    # Samples without known results nearby are left out.
    used = used.join(near.groupby("index")[_RESULTS].sum(min_count=1).dropna(), how="inner")
    used["results"] = (used["size"] - used["spilled_size"]).clip(lower=0.0)
    names = ["time", "memory", "results", "spilled_size", "p2p_size", "tasks"]
    return [
        ProcessMemory(np.flatnonzero(process == number), *samples[names].to_numpy().T)
        for number, samples in used.groupby("process")
    ]


@once_per_trace
def unmanaged_of_runs(run: Run) -> RunMemory:
    """Return the unmanaged memory of the process of each task run."""
    # Inputs that came from other workers when a task run started are managed memory, so the rise of
    # unmanaged memory during the task run does not include them.
    tables = []
    for process in memory_of_processes(run):
        life = process.lives[0]
        read = {"time": process.time + run.begin + run.offsets[life], "memory": process.unmanaged}
        tables.append(pd.DataFrame({"worker_id": life, **read}))
    return read_of_runs(run, pd.concat(tables) if tables else run.samples[:0])


class Readings(NamedTuple):
    """Occasional samples of a process's memory in bytes, by time."""

    host: str
    #: Seconds since the start of the run.
    time: Array
    memory: Array

    def at(self, time: float) -> float:
        """Return the last value at or before `time`, or NaN if it is missing or too old."""
        last = int(np.searchsorted(self.time, time, side="right")) - 1
        holds = last >= 0 and time - self.time[last] <= _SAMPLE_HOLDS
        return float(self.memory[last]) if holds else float("nan")


@once_per_trace
def memory_of_others(run: Run) -> dict[str, Readings]:
    """Return the memory of the processes ``scheduler`` and ``client``, if they have samples.

    A process that also contains a worker has no entry. If the client and the scheduler share a
    process, only the scheduler has an entry.
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
        selected = (clients["host"] == host) & (clients["pid"] == pid)
        if pid >= 0 and (host, pid) not in known:
            readings["client"] = _readings(run, host, clients[selected.to_numpy(dtype=bool)])
    return {name: reading for name, reading in readings.items() if len(reading.time)}


def _readings(run: Run, host: str, table: pd.DataFrame) -> Readings:
    read = table.reindex(columns=["time", "memory"]).dropna().sort_values("time", kind="stable")
    return Readings(str(host), run.since_begin(read["time"]), read["memory"].to_numpy(dtype=float))
