"""Calls and times of tasks' functions, as a profiler of calls counted them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.call_times import call_times
from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import known_texts, text, whole
from dasfprof.analysis.trace import Trace


def has_call_profiles(trace: Trace) -> bool:
    """Return whether a profiler of calls was asked for."""
    return len(trace.call_profiles) > 0


@question(
    "Calls and their times",
    "lines",
    expendable=("Primitive Calls",),
    needs=has_call_profiles,
)
def cprofile(run: Run, function: str | None = None) -> pd.DataFrame:
    """Sum up what cProfile counted, over all workers.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: all of them.

    Returns
    -------
    DataFrame
        A row a function that was called, by its own time; empty where no profiler was asked for:

        - ``File``, ``Line``, ``Code``: where it is; C code has ``~`` and 0
        - ``Calls``; ``Primitive Calls``: those that were not recursive
        - ``Time (s)``: in it alone; ``Share (%)`` of all; ``Cumulative Time (s)``: and in what it
          calls. The profiler's own work is in these times: they compare with each other

        ``attrs["files"]`` are the paths of the files that were summed up, for ``python -m pstats``.
    """
    found = call_times(run.trace, function)
    places = sorted(found.places, key=lambda place: -found.places[place][2])
    figures = np.array([found.places[place] for place in places], dtype=float).reshape(-1, 4)
    own = figures[:, 2]
    table = pd.DataFrame(
        {
            "File": text(np.array([place[0] for place in places], dtype=object)),
            "Line": np.array([place[1] for place in places], dtype=np.int64),
            "Code": text(np.array([place[2] for place in places], dtype=object)),
            "Calls": figures[:, 0].astype(np.int64),
            "Primitive Calls": figures[:, 1].astype(np.int64),
            "Time (s)": own,
            "Share (%)": own / (own.sum() or 1.0) * 100,
            "Cumulative Time (s)": figures[:, 3],
        }
    )
    table.attrs["files"] = found.files
    return table


@question("Profiles of calls", "lines", needs=has_call_profiles)
def call_profiles(run: Run) -> pd.DataFrame:
    """List the files of the profiler of calls, for ``python -m pstats FILE`` and other viewers.

    Returns
    -------
    DataFrame
        A row a worker and function:

        - ``Worker``, ``Function``
        - ``Profiler``: cprofile or profile
        - ``Task Runs``: those in it
        - ``Left Out``: task runs that are not in it: another profiler was active in their thread,
          or they called too many functions. Tasks that are coroutines, and calls of actors, are not
          counted
        - ``File``: its path; it stands beside the trace file
        - ``Refused``: why this worker profiled nothing; empty where it did
    """
    table = run.trace.call_profiles
    labels = run.labels
    order = np.lexsort((table["worker_id"], table["name"].astype(str)))
    table = table.iloc[order]
    return pd.DataFrame(
        {
            "Worker": text(labels[table["worker_id"].to_numpy()]),
            "Function": known_texts(table["name"]),
            "Profiler": known_texts(table["profiler"]),
            "Task Runs": whole(table["runs"].to_numpy(dtype=float)),
            "Left Out": whole(table["left_out"].to_numpy(dtype=float)),
            "File": known_texts(table["path"]),
            "Refused": known_texts(table["refused"]),
        }
    )
