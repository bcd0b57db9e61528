"""Forecasts of the peak memory of workers on another cluster: of results, and of processes.

A result is held from the end of its task until the scheduler would release it. It is held on the
worker that made it, and on each worker that fetched it. The memory of a process also includes its
initial memory, and the memory that running tasks allocate in addition to their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dasfprof.analysis.model.held_results import release_times
from dasfprof.analysis.model.run_memory import memory_of_processes, unmanaged_of_runs
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.worker_exits import Why, departure
from dasfprof.analysis.simulation.inputs import USUAL_COSTS, ReplayCluster, ReplayInputs
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.analysis.simulation.simulator import Outcome, Simulation
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Number of replays with random durations; number of replays if there are more tasks than the third
#: value; and bounds for the standard deviation of the logarithm of durations, which is otherwise
#: that of the function.
_REPLAYS, _FEW, _LARGE, _SPREAD = 20, 5, 10_000, (0.02, 0.3)
#: Quantiles of the replayed peaks. The peak of another run is expected between them.
_WITHIN = 0.1, 0.9
#: Minimum seconds for which two results must be in memory together, so that samples (ten per
#: second) can show their sum.
_TOGETHER = 0.05
#: Minimum margin (fraction) of a forecast of results, and of a forecast of a process.
_MARGINS = 0.07, 0.12
#: Maximum calibration error (fraction of the recorded peak). Above it, nothing is predicted.
_MOST_ERROR = 0.35
#: Maximum error of the peak of results (fraction of the peak of the process) that does not matter.
_NO_MATTER = 0.01
#: Maximum fraction of the bytes of all results that belongs to results with an unknown release.
_MOST_UNKNOWN = 0.01
#: Maximum seconds until the scheduler releases a result that neither a task nor a client needs.
_AT_ONCE = 0.1


@dataclass(frozen=True)
class PeakEstimate:
    """Predicted peak of memory on the fullest worker in bytes, with lower and upper bound."""

    likely: float
    least: float
    most: float


@dataclass(frozen=True)
class MemoryPeaks:
    """Predicted peak memory of the fullest worker of a cluster: of its results and its process."""

    #: Peak of results, in memory or spilled. Then peak of the process, if nothing were spilled.
    results: PeakEstimate
    process: PeakEstimate


class MemoryForecast:
    """Forecasts of memory, computed by replays of a completed run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._replay = replay_of(run)
        #: Reason why nothing can be predicted, as a clause, or empty.
        self.obstacle = self._replay.missing or _obstacle(run)
        if not self.obstacle:
            self.obstacle = self._misses()

    @cached_property
    def recorded(self) -> tuple[float, float]:
        """The recorded peaks of the fullest worker in bytes: of its results, and of its process."""
        seen = memory_of_processes(self._run)
        results = max((float((p.results + p.spilled).max()) for p in seen), default=np.nan)
        return results, max((float((p.memory + p.spilled).max()) for p in seen), default=0)

    def peaks(self, cluster: ReplayCluster) -> MemoryPeaks:
        """Predict the peaks of the fullest worker on a cluster."""
        base_peaks = np.array(self._base_peaks)
        peaks = np.array(list(self._peaks_on(cluster)))
        both = []
        for index, (recorded, margin) in enumerate(zip(self.recorded, _MARGINS, strict=True)):
            # The error of the replays of the recorded cluster may be chance, or be proportional to
            # the peak.
            typical = float(np.median(base_peaks[:, index]))
            scale = float(np.sqrt(recorded / typical)) if typical > 0 else 1.0
            likely, low, high = np.quantile(peaks[:, index], (0.5, *_WITHIN)).tolist()
            least, most = low * min(scale, 1.0), high * max(scale, 1.0)
            both.append(PeakEstimate(likely * scale, least * (1 - margin), most * (1 + margin)))
        return MemoryPeaks(*both)

    @cached_property
    def _base_peaks(self) -> list[tuple[float, float]]:
        return list(self._peaks_on(self._replay.cluster))

    def _misses(self) -> str:
        typical = np.median(np.array(self._base_peaks), axis=0)
        for name, replayed, seen in zip(
            ("results", "processes"), typical.tolist(), self.recorded, strict=True
        ):
            most = max(_MOST_ERROR * seen, _NO_MATTER * self.recorded[1])
            if seen > 0 and not abs(replayed - seen) <= most:
                return (
                    f"a replay on the recorded cluster has up to {replayed / 1000000.0:.0f} MB "
                    f"of {name} on the fullest worker, but there were {seen / 1000000.0:.0f} MB"
                )
        return ""

    def _peaks_on(self, cluster: ReplayCluster) -> Iterator[tuple[float, float]]:
        replay = self._replay
        random = np.random.default_rng(0)  # A fixed seed gives the same answer each time.
        held, count = replay.held(), len(replay.inputs)
        for number in range(_REPLAYS if count <= _LARGE else _FEW):
            factor = np.exp(random.normal(0.0, 1.0, count) * self._spread * (number > 0))
            outcome = replay.outcome(held=held * factor, cluster=cluster)
            yield self._residents.peaks(outcome, held * factor)

    @cached_property
    def _spread(self) -> Array:
        """For each task run, the assumed standard deviation of the logarithm of its duration."""
        inputs = self._replay.inputs
        groups = Groups(inputs.function, len(inputs.functions))
        with np.errstate(divide="ignore"):
            logs = np.log(inputs.running)
        logs[~np.isfinite(logs)] = np.nan
        return np.clip(np.nan_to_num(1.5 * groups.deviation(logs)), *_SPREAD)[inputs.function]

    @cached_property
    def _residents(self) -> _Residents:
        return _Residents(self._run, self._replay)


@once_per_trace
def memory_forecast_of(run: Run) -> MemoryForecast:
    """Return the memory forecasts of a run."""
    return MemoryForecast(run)


def _obstacle(run: Run) -> str:
    """Return a clause with the reason why memory cannot be predicted, or "" if it can."""
    left = np.flatnonzero(np.isfinite(run.workers["left"].to_numpy(dtype=float)))
    if any(departure(run, life).why is Why.MEMORY for life in left.tolist()):
        return (
            "a worker was killed because memory ran out, and what it would have needed is unknown"
        )
    if len(run.under_way) or len(run.unsent):
        return "the run did not end"
    if len(run.shuffle_messages):
        return "P2P shuffles keep data in buffers whose size was not recorded"
    if not memory_of_processes(run):
        return "no samples of workers' results were recorded"
    tasks = run.tasks
    size = np.where(tasks["state"] == "memory", tasks["size"].to_numpy(dtype=float), 0.0)
    unknown = np.isnan(release_times(run)) | ~(size >= 0)
    total = float(np.nansum(size))
    if not (tasks["source"] == "worker").all() or np.nansum(size[unknown]) > _MOST_UNKNOWN * total:
        return "it was not recorded how large results were, or when they were released"
    return ""


class _Residents:
    """Memory that each task run needs in a replay, and when its result is released."""

    def __init__(self, run: Run, replay: Replay) -> None:
        self.replay, times = replay, run.slots.times
        count, first = len(replay.inputs), float(times.arrival.min())
        release = np.full(count, np.inf)
        release[: len(run.tasks)] = release_times(run) - first
        known = times.known - first
        needed, finished = _last_needed(replay.inputs, known), np.sort(known)
        #: Rise of the process's memory while each task run executes. It includes the result.
        self.rise = _rises(run, replay)
        #: Whether the scheduler releases the result of each task run as soon as it is no longer
        #: needed. `never` marks results that the scheduler never had.
        self.at_once = release <= needed + _AT_ONCE
        self.never = release == -np.inf
        #: For results that are released later: number of task runs that have finished by then (0 if
        #: the result is never released), and seconds from the last of these finishes to the
        #: release.
        self.finishes = np.searchsorted(finished, release, side="right")
        self.finishes[~np.isfinite(release)] = 0
        last = finished[np.maximum(self.finishes - 1, 0)]
        self.delay = np.where(self.finishes > 0, release - last, 0.0)
        #: Initial memory of a worker's process: the median over workers.
        self.base = float(np.median([p.unmanaged[0] for p in memory_of_processes(run)]))

    def peaks(self, outcome: Outcome, held: Array) -> tuple[float, float]:
        """Return the peak of results, and of a process, on the fullest worker of a replay."""
        inputs = self.replay.inputs
        done = outcome.executing + held + inputs.seceded
        goes = self._goes(outcome, done)
        size = np.where(self.never, 0.0, inputs.size)
        copied, at, since = _copies(inputs, outcome)
        worker = np.concatenate([outcome.worker, at])
        begin, end = np.concatenate([done, since]), np.concatenate([goes, goes[copied]])
        begin = np.minimum(begin + _TOGETHER, end)
        sizes = np.concatenate([size, size[copied]])
        results, *_ = _peak_at(worker, begin, end, sizes)
        process, *_ = _peak_at(
            np.concatenate([worker, outcome.worker]),
            np.concatenate([begin, outcome.executing]),
            np.concatenate([end, done]),
            np.concatenate([sizes, self.rise]),
        )
        return results, self.base + process

    def _goes(self, outcome: Outcome, done: Array) -> Array:
        """Return when each result would be released in a replay."""
        finished = np.sort(outcome.known)
        needed = _last_needed(self.replay.inputs, outcome.known)
        after = finished[np.maximum(self.finishes - 1, 0)] + self.delay
        later = np.where(self.finishes > 0, np.maximum(after, needed), np.inf)
        return np.maximum(np.where(self.at_once, needed, later), done)


def _last_needed(inputs: ReplayInputs, known: Array) -> Array:
    """Return when the scheduler knew that the last user of each result had ended."""
    # A result without users is needed until the scheduler knows it.
    needed = known.copy()
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    np.maximum.at(needed, inputs.inputs, known[takers])
    return needed


def _copies(inputs: ReplayInputs, outcome: Outcome) -> tuple[Array, Array, Array]:
    """Return the results that other workers fetched, these workers, and the times of fetching."""
    takers = np.repeat(np.arange(len(inputs)), np.diff(inputs.input_offsets))
    elsewhere = outcome.worker[takers] != outcome.worker[inputs.inputs]
    used, takers = inputs.inputs[elsewhere], takers[elsewhere]
    order = np.argsort(outcome.executing[takers], kind="stable")
    used, takers = used[order], takers[order]
    pairs = used.astype(np.int64) * (int(outcome.worker.max(initial=0)) + 1)
    _, first = np.unique(pairs + outcome.worker[takers], return_index=True)
    return used[first], outcome.worker[takers[first]], outcome.executing[takers[first]]


def _peak_at(worker: Array, begin: Array, end: Array, size: Array) -> tuple[float, int, float]:
    """Return the maximum bytes on any worker, the index of that worker, and the time.

    Each item of the arrays stands for data of `size` bytes that `worker` holds from `begin` to
    `end`.
    """
    at, change = np.append(begin, end), np.append(size, -size)
    who = np.append(worker, worker)
    # At the same time, releases count before additions.
    order = np.lexsort((change, at, who))
    if not len(order):
        return 0.0, 0, 0.0
    # The bytes of each worker are 0 at its end, so one cumulative sum is enough for all workers.
    had = np.cumsum(change[order])
    most = int(had.argmax())
    return float(max(had[most], 0.0)), int(who[order[most]]), float(at[order[most]])


def _rises(run: Run, replay: Replay) -> Array:
    """Return the rise of the process's memory during each task run."""
    inputs, memory, count = replay.inputs, unmanaged_of_runs(run), len(run.tasks)
    function = inputs.function[:count]
    groups = Groups(function, len(inputs.functions))
    alone, beside = groups.median(memory.rise), groups.median(memory.rise_beside_others)
    usual = np.where(np.isnan(alone), beside, alone)
    rise = inputs.size.copy()
    # If a task run was not sampled, the median rise of its function is used.
    recorded = np.where(np.isnan(memory.rise), usual[function], memory.rise)
    # The rise is at least the size of the result.
    rise[:count] = np.fmax(recorded, rise[:count])
    return rise


#: Assumed seconds per task. Then assumed number of bytes that a task processes per second.
_EACH, _WORKED_ON = 0.05, 200e6
#: Standard deviation of the logarithm of the random factors by which durations vary.
_GUESSED = 0.5
#: Minimum relative uncertainty of a forecast before a run.
_GUESS_MARGIN = 0.15


def peak_before_run(
    inputs: ReplayInputs, low: Array, high: Array, wanted: Array, threads: Array
) -> tuple[float, float, int]:
    """Return bounds of the peak bytes of results on the fullest worker, and the index of a layer.

    At the lowest peak of several replays, this layer has the most bytes on the fullest worker.

    Parameters
    ----------
    inputs
        See `inputs_before_a_run`.
    low, high
        Bounds of the bytes of each task's result.
    wanted
        Mask of results that a client wants. These are never released.
    threads
        Threads per worker.
    """
    cluster = ReplayCluster(threads, np.zeros(len(threads)), np.full(len(threads), np.inf))
    random, count = np.random.default_rng(0), len(inputs)
    rows = np.repeat(np.arange(count), np.diff(inputs.input_offsets))
    peaks = []
    # The replays use both bounds of the sizes, and durations that are guessed in different ways.
    for size in (low,) if np.array_equal(low, high) else (low, high):
        worked = size + np.bincount(rows, weights=size[inputs.inputs], minlength=count)
        for seconds in (np.full(count, _EACH), _EACH / 10 + worked / _WORKED_ON):
            for spread in (0.0,) if count > _LARGE else (0.0, _GUESSED):
                held = seconds * np.exp(random.normal(0.0, 1.0, count) * spread)
                replayed = replace(inputs, size=size, running=held)
                outcome = Simulation(replayed, held, cluster, USUAL_COSTS).run()
                peaks.append(_results_at_peak(replayed, outcome, held, wanted))
    (least, layer), most = min(peaks), max(peak for peak, _ in peaks)
    return least * (1 - _GUESS_MARGIN), most * (1 + _GUESS_MARGIN), layer


def _results_at_peak(
    inputs: ReplayInputs, outcome: Outcome, held: Array, wanted: Array
) -> tuple[float, int]:
    """Return the peak bytes of results on the fullest worker, and its largest layer's index."""
    done = outcome.executing + held
    goes = np.where(wanted, outcome.wall + 1.0, _last_needed(inputs, outcome.known))
    copied, at, since = _copies(inputs, outcome)
    rows = np.append(np.arange(len(inputs)), copied)
    worker, begin = np.append(outcome.worker, at), np.append(done, since)
    end = np.maximum(goes[rows], begin)
    peak, who, when = _peak_at(worker, begin, end, inputs.size[rows])
    there = (worker == who) & (begin <= when) & (end > when)
    by_layer = np.bincount(
        inputs.function[rows[there]], inputs.size[rows[there]], len(inputs.functions)
    )
    return peak, int(by_layer.argmax()) if len(by_layer) else 0
