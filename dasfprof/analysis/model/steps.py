"""Task runs by the step of the pipeline that they belong to, for every analysis that groups."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: What stands for a step in the rows of task runs that belong to none.
NO_STEP = "(no step)"


def has_steps(trace: Trace) -> bool:
    """Return whether a step is known of any task run."""
    return "step" in trace.tasks and bool((trace.tasks["step"].cat.codes >= 0).any())


def step_groups(*tables: pd.DataFrame) -> tuple[Array, list[str]]:
    """Number the steps of the rows of tables of task runs, one table after the other.

    Returns
    -------
    codes, names
        Row ``i`` belongs to ``names[codes[i]]``; the last name is `NO_STEP`.
    """
    names: dict[str, int] = {}
    for table in tables:
        for name in table["step"].cat.categories if "step" in table else ():
            if name != NO_STEP:
                names.setdefault(name, len(names))
    parts = [np.empty(0, dtype=np.int64)]
    for table in tables:
        if "step" in table:
            column = table["step"].cat
            numbers = [*(names.get(name, len(names)) for name in column.categories), len(names)]
            parts.append(np.array(numbers, dtype=np.int64)[column.codes.to_numpy()])
        else:
            parts.append(np.full(len(table), len(names), dtype=np.int64))
    return np.concatenate(parts), [*names, NO_STEP]
