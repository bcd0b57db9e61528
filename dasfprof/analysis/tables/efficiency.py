"""The tree of parallel efficiencies of the POP project, for a run on Dask."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.simulation.efficiency import find_efficiencies
from dasfprof.analysis.simulation.replay import replay_of
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text

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
            "Efficiency": text(np.array(list(_TREE), dtype=object)),
            "Level": np.array(levels),
            "Value (%)": shares * 100,
            "Formula": text(np.array(formulas, dtype=object)),
            "Verdict": text(np.array(verdicts, dtype=object)),
        }
    )
