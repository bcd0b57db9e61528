"""`Frames`: sizes of the dataframes that tasks return, and which task runs use which of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Packages whose dataframes have a shape of rows and columns.
_PACKAGES = ("pandas.", "cudf.", "geopandas.")


@dataclass(frozen=True)
class Frames:
    """Sizes of the dataframes that tasks return, and the task runs that use each of them."""

    #: Number of rows and of columns of the result of each task run. Both are NaN if the result is
    #: neither a dataframe nor a series. The number of columns of a series is NaN.
    rows: Array
    columns: Array
    #: Pairs of task runs: the first task run (taker) uses the result of the second one (giver).
    takers: Array
    givers: Array
    #: Mask of the task runs whose inputs are all known.
    is_known: Array

    def inputs(self, rows: Array) -> Array | None:
        """Return the task runs whose dataframes the task runs `rows` use, or None if unknown."""
        front, inputs = rows, [np.zeros(0, dtype=np.int64)]
        while len(front):
            uses = np.isin(self.takers, front)
            if not self.is_known[front].all() or len(np.unique(self.takers[uses])) < len(front):
                return None
            # If an input is not a dataframe, such as a part of a shuffle, the dataframes from which
            # it was made count instead.
            before = np.unique(self.givers[uses])
            is_frame = np.isfinite(self.rows[before])
            inputs.append(before[is_frame])
            front = before[~is_frame]
        return np.unique(np.concatenate(inputs))


@once_per_trace
def frames_of(run: Run) -> Frames:
    """Return the dataframes of a run."""
    tasks, (lengths, items) = run.tasks, run.task_dependencies
    count = len(tasks)
    rows, columns = np.full(count, np.nan), np.full(count, np.nan)
    kinds = tasks["type"].astype("category").cat
    named = [
        str(kind).startswith(_PACKAGES) and str(kind).endswith(("DataFrame", "Series"))
        for kind in kinds.categories
    ]
    is_named = np.append(np.array(named, dtype=bool), False)[kinds.codes.to_numpy()]
    succeeded = (tasks["state"] == "memory").to_numpy(dtype=bool)
    last = np.full(len(run.keys), -1, dtype=np.int64)
    # If a key has several task runs, the last successful one counts.
    last[tasks["key_id"].to_numpy()[succeeded]] = np.flatnonzero(succeeded)
    shapes = tasks["shape"].to_numpy(dtype=object)
    for row in np.intersect1d(np.flatnonzero(is_named & succeeded), last).tolist():
        shape = shapes[row]
        if isinstance(shape, tuple) and len(shape) in (1, 2):
            rows[row] = shape[0]
            columns[row] = shape[1] if len(shape) == 2 else np.nan
    takers = np.repeat(np.arange(count), np.maximum(lengths, 0))
    givers = last[items]
    is_known = lengths >= 0
    is_known[takers[givers < 0]] = False
    is_pair = (givers >= 0) & np.isin(takers, last)
    return Frames(rows, columns, takers[is_pair], givers[is_pair], is_known)
