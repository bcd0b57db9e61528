"""Calls of Dask's methods by the client, and calls of functions that cProfile counted."""

from __future__ import annotations

import pstats
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import find_calls, find_sent
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import integers, known_texts, of_workers, text
from dasfprof.analysis.tables.questions import question

#: Label and unit of the columns of `find_calls`.
_FIGURES = {
    "longest": ("Longest (s)", 1.0),
    "waiting": ("Waiting (s)", 1.0),
    "receiving": ("Receiving (s)", 1.0),
    "tokenising": ("Tokenising (s)", 1.0),
    "optimising": ("Optimising (s)", 1.0),
    "pickling": ("Pickling (s)", 1.0),
    "received": ("Received (MB)", 1e6),
    "sent": ("Sent (MB)", 1e6),
}


@question(
    "Client calls by line",
    "time",
    short="called",
    expendable=("Code", "Longest (s)", "Keys"),
    needs="client_calls",
)
def client_calls(run: Run) -> pd.DataFrame:
    """Sum up the client's calls into Dask by line of your program.

    Returns
    -------
    DataFrame
        One row per kind of call and line, sorted by time in descending order:

        - ``Call``: compute, persist, submit, map, gather, result, wait, as_completed, scatter or
          cancel, including everything that Dask does inside it. Tokenising, optimising and
          pickling are listed separately only outside of these calls, such as while your program
          builds a collection
        - ``File``, ``Line``, ``Code``: the innermost line of your own code, and its function
        - ``Calls``: number of calls
        - ``Keys``: total number of tasks or results
        - ``Time (s)``: total time. ``Waiting (s)`` and the columns up to ``Pickling (s)`` are parts
          of it
        - ``Longest (s)``: time of the longest call
        - ``Waiting (s)``: wait for results, or for an answer
        - ``Receiving (s)``: time to receive and deserialize results
        - ``Tokenising (s)``: time to compute the names of tasks
        - ``Optimising (s)``
        - ``Pickling (s)``: time to pickle graphs and queue them for sending
        - ``Received (MB)``: results, in Dask's estimate of their memory
        - ``Sent (MB)``: pickled graphs and scattered data

    Notes
    -----
    Calls are timed, not sampled, and only in the process that registered the profiler. With an
    asynchronous client, a call ends when it returns, even if its answer arrives later. Your own
    code that builds collections does not count, except for tokenising and optimising.
    """
    calls = find_calls(run)
    return pd.DataFrame(
        {
            "Call": known_texts(calls["call"]),
            "File": known_texts(calls["file"]),
            "Line": integers(calls["line"].where(calls["line"] >= 0).to_numpy(dtype=float)),
            "Code": known_texts(calls["code"]),
            "Calls": integers(calls["calls"].to_numpy(dtype=float)),
            "Keys": integers(calls["keys"].to_numpy(dtype=float)),
            "Time (s)": calls["seconds"].to_numpy(dtype=float),
            **{
                label: calls[name].to_numpy(dtype=float) / unit
                for name, (label, unit) in _FIGURES.items()
            },
        }
    )


@question(
    "Large objects in graphs", "balance", short="sent", expendable=("Code",), needs="sent_values"
)
def sent_values(run: Run) -> pd.DataFrame:
    """Sum up the functions and large arguments in graphs, by the line that sent them.

    Returns
    -------
    DataFrame
        One row per name and sending line, sorted by bytes in all tasks in descending order:

        - ``Kind``: function, or argument (of at least 10 kB)
        - ``Name``: of the function, or of the tasks that have the argument
        - ``By Value``: why the function is pickled by value: it is from ``__main__``, it is a
          lambda, it is defined in another function, or its module is registered for pickling by
          value
        - ``Holds``: for a function, the largest object to which it refers, and how; for an
          argument, its type
        - ``Size (MB)``, ``Pickling (s)``: mean size when pickled, and mean time to pickle it once
        - ``Graphs``: number of graphs that contain it
        - ``Tasks``: number of tasks that contain it, estimated for layers of more than 100 tasks.
          For each of these tasks, the scheduler pickles it, and a worker unpickles it
        - ``File``, ``Line``, ``Code``: the line that sent it, and its function
    """
    values = find_sent(run)
    return pd.DataFrame(
        {
            "Kind": known_texts(values["kind"]),
            "Name": known_texts(values["name"]),
            "By Value": known_texts(values["why"]),
            "Holds": known_texts(values["held"]),
            "Size (MB)": values["size"].to_numpy(dtype=float) / 1e6,
            "Pickling (s)": values["seconds"].to_numpy(dtype=float),
            "Graphs": integers(values["graphs"].to_numpy(dtype=float)),
            "Tasks": integers(values["tasks"].to_numpy(dtype=float)),
            "File": known_texts(values["file"]),
            "Line": integers(values["line"].where(values["line"] >= 0).to_numpy(dtype=float)),
            "Code": known_texts(values["code"]),
        }
    )


#: Errors that may be raised when a damaged profile is read.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError)


def call_times(run: Run, function: str | None) -> tuple[dict[Any, tuple[Any, ...]], list[str]]:
    """Return the sum of a function's `pstats` profiles, and the paths of these profiles.

    If `function` is None, the profiles of all functions are summed.
    """
    stats, files = pstats.Stats(), []
    table = run.call_profiles
    for path, name in zip(table["path"], table["name"].astype(object), strict=True):
        if isinstance(path, str) and function in (None, name):
            with suppress(*_DAMAGE):
                stats.add(path)
                files.append(path)
    return stats.stats, files  # type: ignore[attr-defined]


@question(
    "Calls and times by cProfile", "lines", expendable=("Primitive Calls",), needs="call_profiles"
)
def cprofile(run: Run, function: str | None = None) -> pd.DataFrame:
    """Sum up what cProfile counted on all workers.

    Parameters
    ----------
    function
        The task prefix of the profiled task runs. None selects all task runs.

    Returns
    -------
    DataFrame
        One row per called function, sorted by its own time. Empty if no call profiler was
        requested:

        - ``File``, ``Line``, ``Code``: where the function is. C functions have ``~`` and 0
        - ``Calls``, and ``Primitive Calls``, which exclude recursive calls
        - ``Time (s)``: time in the function itself
        - ``Share (%)``: percentage of the time of all functions
        - ``Cumulative Time (s)``: time in the function and in the functions that it calls

        The times include the overhead of cProfile, so compare them only with each other.
        ``attrs["files"]`` lists the paths of the summed files, for ``python -m pstats``.
    """
    stats, files = call_times(run, function)
    locations = sorted(stats, key=lambda location: -stats[location][2])
    figures = np.array([stats[location][:4] for location in locations], dtype=float).reshape(-1, 4)
    self_seconds = figures[:, 2]
    table = pd.DataFrame(
        {
            "File": text([location[0] for location in locations]),
            "Line": np.array([location[1] for location in locations], dtype=np.int64),
            "Code": text([location[2] for location in locations]),
            "Calls": figures[:, 1].astype(np.int64),
            "Primitive Calls": figures[:, 0].astype(np.int64),
            "Time (s)": self_seconds,
            "Share (%)": self_seconds / (self_seconds.sum() or 1.0) * 100,
            "Cumulative Time (s)": figures[:, 3],
        }
    )
    table.attrs["files"] = files
    return table


@question("Files of cProfile", "lines", needs="call_profiles")
def call_profiles(run: Run) -> pd.DataFrame:
    """List the files of the call profiler, for ``python -m pstats FILE`` and other viewers.

    Returns
    -------
    DataFrame
        One row per worker and function:

        - ``Worker``, ``Function``
        - ``Profiler``: cprofile
        - ``Task Runs``: number of profiled task runs
        - ``Left Out``: number of task runs that were not profiled because another task run of the
          process was being profiled, another profiler was active, or the function had called too
          many functions. Coroutine tasks and actor calls do not count
        - ``File``: path of the profile, next to the trace file
        - ``Refused``: why this worker profiled nothing, or empty if it profiled
    """
    table = run.call_profiles
    order = np.lexsort((table["worker_id"], table["name"].astype(str)))
    table = table.iloc[order]
    return pd.DataFrame(
        {
            "Worker": of_workers(run, table["worker_id"]),
            "Function": known_texts(table["name"]),
            "Profiler": known_texts(table["profiler"]),
            "Task Runs": integers(table["runs"].to_numpy(dtype=float)),
            "Left Out": integers(table["left_out"].to_numpy(dtype=float)),
            "File": known_texts(table["path"]),
            "Refused": known_texts(table["refused"]),
        }
    )
