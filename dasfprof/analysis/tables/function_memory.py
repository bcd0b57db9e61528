"""How much memory the processes of functions' task runs held."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.model.run_memory import memory_of_runs
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import text
from dasfprof.database.columns import Array


@question(
    "Memory of functions",
    "balance",
    short="memory",
    expendable=("Median (MB)", "Worker"),
)
def function_memory(run: Run) -> pd.DataFrame:
    """Say how much memory workers' processes held while functions ran, by the samples there are.

    Returns
    -------
    DataFrame
        A row a function, the highest first; NA where no sample tells:

        - ``Function``, ``Task Runs``
        - ``Sampled``: its task runs during which a sample was taken, ten a second by default
        - ``Highest (MB)``: the most that a process held (its resident memory) in such a sample,
          whatever for; ``Median (MB)``: of the most in each run
        - ``Alone``: its task runs that had their process to themselves and enough samples to tell
          of a rise
        - ``Largest Rise (MB)``, ``Median Rise (MB)``: by how much the process held more during
          such a run than before it. What came and went between two samples is not in it
        - ``Worker``, ``Task Key``: of the run with the highest
    """
    tasks, workers = run.ended.tasks, run.workers
    memory = memory_of_runs(run)
    codes, names = tasks["function"].cat.codes.to_numpy(), tasks["function"].cat.categories
    groups = Groups(codes, len(names))
    highest = groups.max(memory.highest)
    shown = np.flatnonzero(groups.sizes)
    shown = shown[np.argsort(-np.nan_to_num(highest[shown], nan=-1.0), kind="stable")]
    best = _rows_of_highest(codes, memory.highest, len(names))[shown]
    known = best >= 0
    labels, keys = np.full(len(shown), "", object), np.full(len(shown), "", object)
    labels[known] = workers.labels[workers.numbers(tasks.iloc[best[known]])]
    keys[known] = run.trace.keys.texts(tasks["key_id"].to_numpy()[best[known]])
    return pd.DataFrame(
        {
            "Function": text(names.to_numpy(object)[shown]),
            "Task Runs": groups.sizes[shown],
            "Sampled": groups.known(memory.highest)[shown],
            "Highest (MB)": highest[shown] / 1e6,
            "Median (MB)": groups.median(memory.highest)[shown] / 1e6,
            "Alone": groups.known(memory.rise)[shown],
            "Largest Rise (MB)": groups.max(memory.rise)[shown] / 1e6,
            "Median Rise (MB)": groups.median(memory.rise)[shown] / 1e6,
            "Worker": text(labels),
            "Task Key": text(keys),
        }
    )


def _rows_of_highest(codes: Array, values: Array, count: int) -> Array:
    """Return the row of the largest value of each group; -1 where none has any."""
    rows = np.full(count, -1, dtype=np.int64)
    told = np.flatnonzero(np.isfinite(values))
    told = told[np.argsort(values[told], kind="stable")]
    rows[codes[told]] = told
    return rows
