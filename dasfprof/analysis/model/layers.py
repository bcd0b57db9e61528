"""Which task runs do the same work on other data: those of a function in one layer of the graph."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.run.once_per_trace import once_per_trace
from dasfprof.analysis.trace.keys import KeyTable
from dasfprof.database.columns import Array
from dasfprof.database.keys import TUPLE


@once_per_trace
def task_layers(trace: Run) -> Groups:
    """Group the task runs by layer, see `number_layers`."""
    tasks = trace.tasks
    codes = number_layers(
        trace.keys, tasks["key_id"].to_numpy(), tasks["function"].cat.codes.to_numpy()
    )
    return Groups(codes, int(codes.max(initial=-1)) + 1)


def number_layers(keys: KeyTable, key_ids: Array, functions: Array) -> Array:
    """Number the layers of the graph.

    The mean of ``x`` and that of ``x ** 3`` are layers whose tasks are all called ``mean_chunk``,
    and do other work. Tasks of a collection's layer have tuples as keys, which begin alike; those
    of a function whose keys are text count as one layer.

    Parameters
    ----------
    keys
        The keys of the trace.
    key_ids, functions
        Of each task run.

    Returns
    -------
    array
        The number of each task run's layer, from 0.
    """
    kinds = np.array([kind for kind, _ in keys.heads], dtype=np.int8)
    heads = keys.head_ids[key_ids]
    layers = np.where(kinds[heads] >= TUPLE, heads, len(kinds) + functions.astype(np.int64))
    codes: Array = pd.factorize(layers)[0]
    return codes
