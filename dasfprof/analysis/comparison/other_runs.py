"""What other runs of the same pipeline and graph took, as the history of their directory has it."""

from __future__ import annotations

import numpy as np

from dasfprof.analysis.comparison.runs import ComparedRun
from dasfprof.analysis.history.over_time import changes_of, kept_runs
from dasfprof.analysis.history.summary import pipeline_of, shape_of
from dasfprof.analysis.numeric.significance import student_quantile
from dasfprof.database.columns import Array

#: So few runs say too little of how much others vary; more than these are too long ago.
_ENOUGH, _MOST = 5, 20


def other_walls(before: ComparedRun, after: ComparedRun) -> Array:
    """Return the wall times of the last other runs of the graph of the run before.

    Those that the history of its directory has summed up, since the wall time last changed; none,
    if they are too few to tell how much runs vary.
    """
    if before.directory is None:
        return np.empty(0)
    pipeline, shape = pipeline_of(before.name), shape_of(before.trace)
    runs = [
        run
        for run in kept_runs(before.directory)
        if (run["pipeline"], run["shape"]) == (pipeline, shape)
        and run["run"] not in (before.name, after.name)
        and run["ended"]
        and not run["failed"]
        and run["seconds"]
    ]
    changed = [at for at, change in enumerate(changes_of(runs)) if change]
    seconds = [run["seconds"] for run in runs[changed[-1] if changed else 0 :]]
    return np.array(seconds[-_MOST:] if len(seconds) >= _ENOUGH else [], dtype=float)


def least_of_others(walls: Array, p: float) -> float:
    """Return the share by which two single runs differ as rarely as `p`, if others took so long.

    Of a normal spread of the logarithms, of which the walls are a sample.
    """
    deviation = float(np.log(walls).std(ddof=1))
    return float(np.expm1(student_quantile(p, len(walls) - 1) * np.sqrt(2) * deviation))
