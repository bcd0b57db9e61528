"""Errors that came with the end of a program: they are not why it ended.

Ctrl-C in a terminal sends SIGINT to all processes of a program, those that tasks started as well:
a task that had waited for one for hours then ends in an error, just before or after its client
leaves. The errors of such tasks tell of the signal, as nothing else in a trace does.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from dasfprof.analysis.model.once_per_trace import once_per_trace
from dasfprof.analysis.trace import Trace
from dasfprof.database.columns import Array

#: How the text of an exception begins where SIGINT ended a child process: `subprocess` returns the
#: number of the signal, shells 128 more.
_TOLD = re.compile(r"CalledProcessError\((-2|130)\b|KeyboardInterrupt\b")
#: Seconds between the signal and the end of the program, at most, in whichever order.
_ENDS = 3.0


def first_interrupted(trace: Trace, ended: float) -> float:
    """Return when SIGINT first ended what a task waited for, as the program ended.

    Parameters
    ----------
    trace
        The trace.
    ended
        When the last client, or all workers, left.

    Returns
    -------
    float
        Unix seconds; NaN where no error tells of it.
    """
    ends = interrupted_ends(trace)
    ends = ends[np.abs(ends - ended) <= _ENDS]
    return float(ends.min()) if len(ends) else float("nan")


@once_per_trace
def interrupted_ends(trace: Trace) -> Array:
    """Return when the task runs ended whose errors tell of SIGINT, in Unix seconds."""
    found = [
        _ends(trace.tasks, "exception", "start", "duration"),
        _ends(trace.scheduler_only, "scheduler_exception", "known", None),
    ]
    return np.concatenate(found)


def _ends(runs: pd.DataFrame, message: str, begin: str, length: str | None) -> Array:
    """Return when the task runs ended whose errors tell of SIGINT."""
    if message not in runs or not len(runs):
        return np.empty(0)
    texts = runs[message].astype("category").cat.categories
    telling = [text for text in texts if _TOLD.match(str(text))]
    own = runs[runs[message].isin(telling).to_numpy(dtype=bool)]
    ends = own[begin].to_numpy(dtype=float)
    return ends if length is None else ends + own[length].to_numpy(dtype=float)
