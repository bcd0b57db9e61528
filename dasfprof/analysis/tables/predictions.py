"""What would have been: other clusters, networks and durations, and how efficient the run was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasfprof.analysis.run import Run
from dasfprof.analysis.simulation.changes import (
    Scaling,
    changed_cluster,
    changed_wall,
    find_efficiencies,
    predict_scaling,
    walls_without_waits,
    worker_counts,
)
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question

#: From here on an efficiency is acceptable, by POP's rule of thumb.
ACCEPTABLE = 0.8

#: Each efficiency: its level in the tree, what it is, and what a low one means.
_TREE = {
    "Global": (0, "parallel x computation", "see the rows below"),
    "Parallel": (1, "load balance x communication", "threads idle"),
    "Load balance": (
        2,
        "mean / most of the workers' shares of time in functions",
        "some workers have more to do than others: smaller or more equal chunks",
    ),
    "Communication": (
        2,
        "serialisation x transfer",
        "even the busiest worker waits: for inputs, the scheduler, or the client",
    ),
    "Serialisation": (
        3,
        "communication / transfer",
        "tasks wait for tasks, the scheduler or the client: see critical_path()",
    ),
    "Transfer": (
        3,
        "wall time of a replay in which inputs come in no time / of a replay",
        "inputs are moved between workers: see transfers()",
    ),
    "Computation": (
        1,
        "CPU seconds / seconds in functions",
        "functions wait: for disks, locks, the GIL, cores or a GPU",
    ),
}


@question("Parallel efficiencies", "predictions")
def pop_efficiency(run: Run) -> pd.DataFrame:
    """Return the tree of parallel efficiencies of the POP project.

    Returns
    -------
    DataFrame
        A row an efficiency, each before its factors: ``Efficiency``, ``Level`` (0: the
        whole), ``Value (%)``, ``Formula``, ``Verdict`` (acceptable from 80 %):

        - ``Global`` = ``Parallel`` x ``Computation``
        - ``Parallel`` = ``Load balance`` x ``Communication``: the share of the threads' time
          that functions ran
        - ``Communication`` = ``Serialisation`` x ``Transfer``

    Notes
    -----
    POP's own metrics (Rosas, Gimenez and Labarta 2014) are over processes that live as long
    as the run; here a worker counts by its threads and by how long it was there.
    """
    found, refusal = find_efficiencies(run), replay_of(run).refusal
    values = {
        "Global": found.whole,
        "Parallel": found.parallel,
        "Load balance": found.load_balance,
        "Communication": found.communication,
        "Serialisation": found.serialisation,
        "Transfer": found.transfer,
        "Computation": found.computation,
    }
    levels, formulas, meanings = zip(*_TREE.values(), strict=True)
    shares = np.array([values[name] for name in _TREE])
    verdicts = []
    for name, share, meaning in zip(_TREE, shares.tolist(), meanings, strict=True):
        if np.isnan(share):
            needs_replay = name in ("Serialisation", "Transfer")
            verdict = (needs_replay and refusal) or "Unknown: not recorded."
        else:
            verdict = "Acceptable." if share >= ACCEPTABLE else f"Low: {meaning}."
        verdicts.append(verdict)
    return pd.DataFrame(
        {
            "Efficiency": text(list(_TREE)),
            "Level": np.array(levels),
            "Value (%)": shares * 100,
            "Formula": text(formulas),
            "Verdict": text(verdicts),
        }
    )


#: Shares of the recorded workers that are asked about if none are given.
_USUAL = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
#: A thread works for so large a share of its time where more workers are worth it.
_EFFICIENT = 0.8


@question("The run on other numbers of workers", "predictions")
def scaling(
    run: Run, workers: Sequence[int] | None = None, *, progress: bool = False
) -> pd.DataFrame:
    """Predict wall time, efficiency and cost on fewer and on more workers.

    Parameters
    ----------
    workers
        Numbers of workers; None asks about 10 % to 1000 % of the recorded ones. Each takes a
        replay.

    Returns
    -------
    DataFrame
        A row a number of workers:

        - ``Workers``, ``Threads``, ``Share of Recorded (%)``
        - ``Wall Time (s)``: predicted; NA where nothing can be
        - ``Efficiency (%)``: the share of the threads' time that tasks hold them
        - ``Cost (worker-s)``: workers by wall time
        - ``Least (s)``: ``max(longest chain, work / threads)``, which no schedule beats; the
          client's pauses are part of the chain
        - ``Most without Overhead (s)``: ``work / threads + (1 - 1 / threads) * longest
          chain``, which no schedule exceeds that keeps no ready task waiting for a thread, if
          nothing but tasks takes time (Graham 1969, Brent 1974)
        - ``Calibration Error (%)``, ``Verdict``
    """
    replay = replay_of(run)
    recorded = max(replay.cluster.most_workers, 1)
    found = predict_scaling(run, worker_counts(workers, recorded, _USUAL), progress=progress)
    count = len(found.workers)
    return pd.DataFrame(
        {
            "Workers": found.workers,
            "Threads": found.threads,
            "Share of Recorded (%)": found.workers / recorded * 100,
            "Wall Time (s)": found.walls,
            "Efficiency (%)": found.efficiency * 100,
            "Cost (worker-s)": found.workers * found.walls,
            "Least (s)": found.least,
            "Most without Overhead (s)": found.most,
            "Calibration Error (%)": np.full(
                count, np.nan if replay.obstacle else replay.error * 100
            ),
            "Verdict": text(_verdicts(found)),
        }
    )


def _verdicts(found: Scaling) -> list[str]:
    verdicts = []
    for share, refusal in zip(found.efficiency.tolist(), found.refusals, strict=True):
        if refusal:
            verdicts.append(refusal)
        elif share >= _EFFICIENT:
            verdicts.append("Threads are busy; more workers make it faster.")
        elif share >= _EFFICIENT / 2:
            verdicts.append("Threads idle in part: each further worker gains less.")
        else:
            verdicts.append("Threads mostly idle: fewer workers take little longer.")
    return verdicts


@question("The run after a change", "predictions")
def what_if(
    run: Run,
    *,
    workers: int | None = None,
    threads: int | None = None,
    bandwidth: float | None = None,
    spill: bool = True,
    speedup: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Predict the wall time of the run after a change; several changes count together.

    Parameters
    ----------
    workers
        How many there are at most; they come and go as the recorded ones did.
    threads
        Of each worker.
    bandwidth
        Between two workers, bytes a second.
    spill
        False: no input is read back from disk.
    speedup
        By function, by how much it is faster: 2 is twice as fast, 0.5 half as fast.

    Returns
    -------
    DataFrame
        One row:

        - ``Change``
        - ``Recorded (s)``: from the first task's arrival to the last known finish
        - ``Replayed (s)``: the same of the replay on the recorded cluster
        - ``Predicted (s)``: the recorded time, changed in the proportion in which the
          replay's changes; NA where nothing can be predicted
        - ``Saved (s)``, ``Saved (%)``
        - ``Calibration Error (%)``: of the replay at the recorded cluster; ``Error with
          Recorded Placement (%)``: the same, with each task on the worker where it ran (NA
          for more than 200,000 task runs)
        - ``Verdict``, or why nothing can be predicted

    Raises
    ------
    InvalidArgumentError
        If a number is out of range, or there is no such function.
    """
    wall = changed_wall(
        run, workers=workers, threads=threads, bandwidth=bandwidth, spill=spill, speedup=speedup
    )
    named = {"workers": workers, "threads": threads, "bandwidth": bandwidth}
    changes = [f"{name}={value:.12g}" for name, value in named.items() if value is not None]
    changes += ["spill=False"] * (not spill)
    changes += [f"{name}: {factor:g} times as fast" for name, factor in (speedup or {}).items()]
    replay = replay_of(run)
    refusal = replay.refusal_on(changed_cluster(replay, workers, threads))
    return _prediction_table(run, [", ".join(changes) or "none"], [wall], refusal)


@question("The run without each thing that tasks wait for", "predictions")
def blocked_time(run: Run) -> pd.DataFrame:
    """Predict the wall time without each of the things that tasks wait for.

    Each is a replay of the whole schedule, as waits of tasks that were not critical gain
    nothing (Ousterhout et al., NSDI 2015).

    Returns
    -------
    DataFrame
        A row a thing, with the columns of `what_if`; ``Change`` is ``no network`` (inputs
        come in no time), ``no unspilling``, ``no blocking in functions`` (they take their CPU
        seconds and their wait for a core: without disks, locks, sleep; left out where CPU
        seconds are unknown), ``no scheduler latency``.
    """
    walls = walls_without_waits(run)
    return _prediction_table(run, list(walls), list(walls.values()))


def _prediction_table(
    run: Run, changes: Sequence[str], walls: Sequence[float], refusal: str = ""
) -> pd.DataFrame:
    """Tabulate replays of a run after changes, each as its wall seconds, or why they tell none."""
    replay = replay_of(run)
    refusal = refusal or replay.refusal
    known = not replay.obstacle
    count, recorded = len(changes), replay.inputs.wall
    tells = known and not refusal
    predicted = np.array([replay.predicted(wall) if tells else np.nan for wall in walls])
    error = replay.error * 100 if known else np.nan
    placed = replay.recorded_placement_error * 100 if known else np.nan
    saved = recorded - predicted
    verdicts = [refusal or _verdict(recorded, wall) for wall in predicted.tolist()]
    return pd.DataFrame(
        {
            "Change": text(changes),
            "Recorded (s)": np.full(count, recorded),
            "Replayed (s)": np.full(count, replay.base if known else np.nan),
            "Predicted (s)": predicted,
            "Saved (s)": saved,
            "Saved (%)": saved / recorded * 100 if recorded > 0 else np.full(count, np.nan),
            "Calibration Error (%)": np.full(count, error),
            "Error with Recorded Placement (%)": np.full(count, placed),
            "Verdict": text(verdicts),
        }
    )


def _verdict(recorded: float, predicted: float) -> str:
    if predicted == 0:
        return "No time is left." if recorded > 0 else "No difference to speak of."
    if predicted < recorded * 0.99:
        return f"{recorded / predicted:.3g} times as fast."
    if predicted > recorded * 1.01:
        return f"{predicted / recorded:.3g} times as long."
    return "No difference to speak of."
