"""The tree of parallel efficiencies of the POP project, for a run on Dask."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.simulation.replay import Replay, replay_of
from dasfprof.analysis.tables.columns import text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace import Trace

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
def pop_efficiency(trace: Trace) -> pd.DataFrame:
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
    replay = replay_of(trace)
    values = _values(trace, replay)
    levels, formulas, meanings = zip(*_TREE.values(), strict=True)
    shares = np.array([values[name] for name in _TREE])
    verdicts = []
    for name, share, meaning in zip(_TREE, shares.tolist(), meanings, strict=True):
        if np.isnan(share):
            needs_replay = name in ("Serialisation", "Transfer")
            verdict = (needs_replay and replay.refusal) or "Unknown: not recorded."
        else:
            verdict = "Acceptable." if share >= ACCEPTABLE else f"Low: {meaning}."
        verdicts.append(verdict)
    return pd.DataFrame(
        {
            "Efficiency": text(np.array(list(_TREE), dtype=object)),
            "Level": np.array(levels),
            "Value (%)": shares * 100,
            "Formula": text(np.array(formulas, dtype=object)),
            "Verdict": text(np.array(verdicts, dtype=object)),
        }
    )


def _values(trace: Trace, replay: Replay) -> dict[str, float]:
    """Compute the efficiencies.

    POP's are over processes that live as long as the run. Here a worker's useful time is taken as
    a share of its threads' seconds while it was there, and counts by these.
    """
    unknown = float("nan")
    values = dict.fromkeys(_TREE, unknown)
    inputs, wall = replay.inputs, replay.inputs.wall
    if not len(inputs) or not 0 < wall < np.inf or not np.isfinite(inputs.running).all():
        return values
    lives = replay.cluster
    seconds = np.minimum(lives.left, wall) - np.minimum(lives.joined, wall)
    there = lives.threads * np.maximum(seconds, 0.0)
    useful = Groups(inputs.worker, len(there)).sum(inputs.running)
    lived = there > 0
    if not lived.any():
        return values
    # Concurrent coroutines, and clocks, may give a thread more work than seconds.
    shares = np.minimum(useful[lived] / there[lived], 1.0)
    mean, most = float(np.average(shares, weights=there[lived])), float(shares.max(initial=0.0))
    values["Parallel"] = mean
    if most > 0:
        values["Load balance"] = mean / most
        values["Communication"] = most
        if not replay.refusal:
            free = replay.outcome(costs=replay.without_network()).wall
            values["Transfer"] = min(free / replay.base, 1.0)
            values["Serialisation"] = min(most / values["Transfer"], 1.0)
    values["Computation"] = _computation(trace)
    values["Global"] = mean * values["Computation"]
    return values


def _computation(trace: Trace) -> float:
    cpu, seconds = (trace.tasks[x].to_numpy(dtype=float) for x in ("cpu", "duration"))
    told = np.isfinite(cpu)
    whole = seconds[told].sum()
    return float(min(cpu[told].sum() / whole, 1.0)) if whole > 0 else float("nan")
