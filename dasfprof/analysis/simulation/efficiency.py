"""The parallel efficiencies of the POP project, for a run on Dask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.simulation.replay import Replay, replay_of

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


def find_efficiencies(run: Run) -> Efficiencies:
    """Compute the efficiencies of a run.

    POP's are over processes that live as long as the run. Here a worker's useful time is taken as
    a share of its threads' seconds while it was there, and counts by these.
    """
    replay = replay_of(run)
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
        return Efficiencies(parallel=mean, computation=_computation(run))
    transfer = _transfer(replay)
    return Efficiencies(
        parallel=mean,
        load_balance=mean / most,
        communication=most,
        serialisation=min(most / transfer, 1.0) if np.isfinite(transfer) else _UNKNOWN,
        transfer=transfer,
        computation=_computation(run),
    )


def _transfer(replay: Replay) -> float:
    if replay.refusal:
        return _UNKNOWN
    return min(replay.outcome(costs=replay.without_network()).wall / replay.base, 1.0)


def _computation(run: Run) -> float:
    cpu, seconds = (run.ended.tasks[x].to_numpy(dtype=float) for x in ("cpu", "duration"))
    told = np.isfinite(cpu)
    whole = seconds[told].sum()
    return float(min(cpu[told].sum() / whole, 1.0)) if whole > 0 else _UNKNOWN
