"""A run on other numbers of workers: its bounds, simulated times and parallel efficiencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.inputs import ReplayInputs
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.analysis.trace.progress import track
from dasfprof.database.columns import Array


@dataclass(frozen=True)
class Bounds:
    """The work of a run and its longest chain, seconds."""

    #: Of all threads together.
    work: float
    #: Of the chain of runs, each of which needs the one before, that takes the most; the client's
    #: pauses between graphs are part of it.
    chain: float

    def lower(self, threads: int) -> float:
        """Return what no schedule on so many threads is shorter than."""
        return max(self.chain, self.work / threads)

    def upper(self, threads: int) -> float:
        """Return what no schedule is longer than that leaves no thread idle while a task is ready.

        Graham (1969): ``work / P + (1 - 1 / P) * chain``, if nothing but tasks takes time.
        """
        return self.work / threads + (1 - 1 / threads) * self.chain


def find_bounds(inputs: ReplayInputs, held: Array) -> Bounds:
    """Find the bounds of a run by the seconds for which each task run holds a thread."""
    return Bounds(work=float(held.sum()), chain=_longest_chain(inputs, held))


def _longest_chain(inputs: ReplayInputs, held: Array) -> float:
    """Return when the last run would end if every run had a thread as soon as it could begin.

    A graph that came after some of the finishes before it counts as coming with the one before
    it: which of them would be first then is not known.
    """
    submissions = inputs.submissions
    order = np.lexsort((inputs.begun, inputs.graph))
    offsets, used = inputs.input_offsets.tolist(), inputs.inputs.tolist()
    seconds = (held + inputs.seceded).tolist()
    told = submissions.told.tolist()
    sizes = np.bincount(inputs.graph[submissions.told], minlength=len(submissions.delay))
    before = (np.cumsum(sizes) - sizes).tolist()
    finishes, delay = submissions.finishes.tolist(), submissions.delay.tolist()
    ends = [0.0] * len(inputs)
    came, latest_told, latest, current = 0.0, 0.0, 0.0, 0
    for row, graph in zip(order.tolist(), inputs.graph[order].tolist(), strict=True):
        while current < graph:
            current += 1
            if not finishes[current]:
                came += delay[current]
            elif finishes[current] == before[current]:
                came = max(came, latest_told + delay[current])
        end = came
        for one in used[offsets[row] : offsets[row + 1]]:
            end = max(end, ends[one])
        end += seconds[row]
        ends[row] = end
        latest = max(latest, end)
        if told[row]:
            latest_told = max(latest_told, end)
    return latest


@dataclass(frozen=True)
class Scaling:
    """Predictions by number of workers."""

    workers: Array
    threads: Array
    #: Wall seconds; NaN where nothing can be predicted.
    walls: Array
    #: The share of the threads' time that tasks hold them.
    efficiency: Array
    #: Wall seconds between which any schedule is, if nothing but tasks takes time.
    least: Array
    most: Array
    #: For each, why nothing can be predicted, in words; empty where it can.
    refusals: list[str]


def predict_scaling(trace: Run, workers: Sequence[int], *, progress: bool = False) -> Scaling:
    """Replay a run on each number of workers."""
    replay = replay_of(trace)
    bounds = find_bounds(replay.inputs, replay.held())
    clusters = [replay.cluster.with_workers(count) for count in workers]
    threads = np.array([max(cluster.most_threads, 1) for cluster in clusters])
    walls = np.full(len(workers), np.nan)
    if not replay.obstacle:
        bar = track(clusters, "Replaying", shown=progress, total=len(clusters), unit="cluster")
        walls[:] = [replay.predicted(replay.outcome(cluster=cluster).wall) for cluster in bar]
    refusals = [replay.refusal_on(cluster) for cluster in clusters]
    walls[[bool(refusal) for refusal in refusals]] = np.nan
    return Scaling(
        workers=np.array(workers, dtype=np.int64),
        threads=threads,
        walls=walls,
        efficiency=bounds.work / (threads * walls),
        least=np.array([bounds.lower(count) for count in threads.tolist()]),
        most=np.array([bounds.upper(count) for count in threads.tolist()]),
        refusals=refusals,
    )


_UNKNOWN = float("nan")


@dataclass(frozen=True)
class Efficiencies:
    """Shares of 1; NaN where they are not known."""

    #: The share of the threads' time that functions ran: load balance x communication.
    parallel: float = _UNKNOWN
    #: Mean / most of the workers' shares of time in functions.
    load_balance: float = _UNKNOWN
    #: The busiest worker's share: serialisation x transfer.
    communication: float = _UNKNOWN
    serialisation: float = _UNKNOWN
    #: Wall time of a replay in which inputs come in no time / of a replay.
    transfer: float = _UNKNOWN
    #: CPU seconds / seconds in functions.
    computation: float = _UNKNOWN

    @property
    def whole(self) -> float:
        """All of them together: parallel x computation."""
        return self.parallel * self.computation


def find_efficiencies(trace: Run) -> Efficiencies:
    """Compute the efficiencies of a run.

    POP's are over processes that live as long as the run. Here a worker's useful time is taken as
    a share of its threads' seconds while it was there, and counts by these.
    """
    replay = replay_of(trace)
    inputs, wall = replay.inputs, replay.inputs.wall
    if not len(inputs) or not 0 < wall < np.inf or not np.isfinite(inputs.running).all():
        return Efficiencies()
    lives = replay.cluster
    seconds = np.minimum(lives.left, wall) - np.minimum(lives.joined, wall)
    there = lives.threads * np.maximum(seconds, 0.0)
    useful = Groups(inputs.worker, len(there)).sum(inputs.running)
    lived = there > 0
    if not lived.any():
        return Efficiencies()
    # Concurrent coroutines, and clocks, may give a thread more work than seconds.
    shares = np.minimum(useful[lived] / there[lived], 1.0)
    mean, most = float(np.average(shares, weights=there[lived])), float(shares.max(initial=0.0))
    if most <= 0:
        return Efficiencies(parallel=mean, computation=_computation(trace))
    transfer = _transfer(replay)
    return Efficiencies(
        parallel=mean,
        load_balance=mean / most,
        communication=most,
        serialisation=min(most / transfer, 1.0) if np.isfinite(transfer) else _UNKNOWN,
        transfer=transfer,
        computation=_computation(trace),
    )


def _transfer(replay: Replay) -> float:
    if replay.refusal:
        return _UNKNOWN
    return min(replay.outcome(costs=replay.without_network()).wall / replay.base, 1.0)


def _computation(trace: Run) -> float:
    cpu, seconds = (trace.tasks[x].to_numpy(dtype=float) for x in ("cpu", "duration"))
    told = np.isfinite(cpu)
    whole = seconds[told].sum()
    return float(min(cpu[told].sum() / whole, 1.0)) if whole > 0 else _UNKNOWN
