"""Calls: of Dask by the client, of functions as a profiler counted them, of actors' methods."""

from __future__ import annotations

import pstats
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import ClientTime, client_time_of, find_calls, find_sent
from dasfprof.analysis.numeric.intervals import union
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, of_workers, text, whole
from dasfprof.analysis.tables.questions import question

# --- What the client's program called of Dask, and where its time went ----------------------------


#: Columns of `find_calls` as the table has them, with what their figures are divided by.
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
    "What the client called",
    "time",
    short="called",
    expendable=("Code", "Longest (s)", "Keys"),
    needs="client_calls",
)
def client_calls(run: Run) -> pd.DataFrame:
    """Sum up the calls of Dask by the client's program, by line.

    Returns
    -------
    DataFrame
        A row a kind of call and line, the longest first:

        - ``Call``: compute, persist, submit, map, gather, result, wait, as_completed, scatter or
          cancel, with all that Dask does in it; tokenising, optimising or pickling, where Dask did
          that outside of these, as while a collection is built
        - ``File``, ``Line``, ``Code``: the innermost line of the program's own code
        - ``Calls``: how many; ``Keys``: of tasks or results, all together
        - ``Time (s)``: of them all; the rest is part of it: ``Longest (s)``; ``Waiting (s)`` until
          results were there, or for an answer; ``Receiving (s)`` them, until they are
          deserialised; ``Tokenising (s)``: making names of tasks; ``Optimising (s)``;
          ``Pickling (s)``: and handing over graphs
        - ``Received (MB)``: results, as Dask sizes them in memory; ``Sent (MB)``: graphs, pickled,
          and what was scattered

    Notes
    -----
    All of it is timed, not sampled, and in the process that registered the profiler alone. Of an
    asynchronous client a call has ended when it returns, before its answer: nobody waits.
    What the program does to build collections is its own, but for names and optimising.
    """
    found = find_calls(run)
    return pd.DataFrame(
        {
            "Call": known_texts(found["call"]),
            "File": known_texts(found["file"]),
            "Line": whole(found["line"].where(found["line"] >= 0).to_numpy(dtype=float)),
            "Code": known_texts(found["code"]),
            "Calls": whole(found["calls"].to_numpy(dtype=float)),
            "Keys": whole(found["keys"].to_numpy(dtype=float)),
            "Time (s)": found["seconds"].to_numpy(dtype=float),
            **{
                label: found[name].to_numpy(dtype=float) / unit
                for name, (label, unit) in _FIGURES.items()
            },
        }
    )


@question("Where the client's time went", "time", needs="client_calls")
def client_time(run: Run) -> pd.DataFrame:
    """Put every second of the client's main thread into exactly one class.

    Returns
    -------
    DataFrame
        A row a class: ``Class``, ``Time (s)``, ``Share (%)`` of the time for which it was recorded,
        ``Meaning``. Empty where the client's end was not recorded and it called nothing.
    """
    seconds = client_time_of(run)
    total = sum(seconds.values())
    classes = [each for each in ClientTime if seconds.get(each, 0.0) > 0]
    times = np.array([seconds[each] for each in classes], dtype=float)
    return pd.DataFrame(
        {
            "Class": text([each.value for each in classes]),
            "Time (s)": times,
            "Share (%)": times / (total or 1.0) * 100,
            "Meaning": text([each.meaning for each in classes]),
        }
    )


@question(
    "Large values in graphs", "balance", short="sent", expendable=("Code",), needs="sent_values"
)
def sent_values(run: Run) -> pd.DataFrame:
    """Sum up the functions by value and the arguments of 10 kB or more in graphs, by line.

    Returns
    -------
    DataFrame
        A row a value's name and the line that sent it, those with most bytes in all tasks first:

        - ``Kind``: function or argument; ``Name``: of the function, or of the tasks that have the
          argument
        - ``By Value``: why the function is: of __main__, a lambda, defined in a function, its
          module is sent by value
        - ``Holds``: the largest that the function holds, and how; the argument's type
        - ``Size (MB)``: pickled; ``Pickling (s)``: once (means)
        - ``Graphs``; ``Tasks``: that have it, about, where layers have more than 100; the scheduler
          pickles it for each, and a worker unpickles it
        - ``File``, ``Line``, ``Code``
    """
    found = find_sent(run)
    return pd.DataFrame(
        {
            "Kind": known_texts(found["kind"]),
            "Name": known_texts(found["name"]),
            "By Value": known_texts(found["why"]),
            "Holds": known_texts(found["held"]),
            "Size (MB)": found["size"].to_numpy(dtype=float) / 1e6,
            "Pickling (s)": found["seconds"].to_numpy(dtype=float),
            "Graphs": whole(found["graphs"].to_numpy(dtype=float)),
            "Tasks": whole(found["tasks"].to_numpy(dtype=float)),
            "File": known_texts(found["file"]),
            "Line": whole(found["line"].where(found["line"] >= 0).to_numpy(dtype=float)),
            "Code": known_texts(found["code"]),
        }
    )


# --- Calls: of functions, as a profiler counted them, and of actors' methods ----------------------

#: What damaged files of profiles raise.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError)


def call_times(run: Run, function: str | None) -> tuple[dict[Any, tuple[Any, ...]], list[str]]:
    """Sum up the profiles of one function, or of all, as `pstats` does; return what was read."""
    found, files = pstats.Stats(), []
    table = run.call_profiles
    for path, name in zip(table["path"], table["name"].astype(object), strict=True):
        if isinstance(path, str) and function in (None, name):
            with suppress(*_DAMAGE):
                found.add(path)
                files.append(path)
    return found.stats, files  # type: ignore[attr-defined]


@question("Calls and their times", "lines", expendable=("Primitive Calls",), needs="call_profiles")
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
    found, files = call_times(run, function)
    places = sorted(found, key=lambda place: -found[place][2])
    figures = np.array([found[place][:4] for place in places], dtype=float).reshape(-1, 4)
    own = figures[:, 2]
    table = pd.DataFrame(
        {
            "File": text([place[0] for place in places]),
            "Line": np.array([place[1] for place in places], dtype=np.int64),
            "Code": text([place[2] for place in places]),
            "Calls": figures[:, 1].astype(np.int64),
            "Primitive Calls": figures[:, 0].astype(np.int64),
            "Time (s)": own,
            "Share (%)": own / (own.sum() or 1.0) * 100,
            "Cumulative Time (s)": figures[:, 3],
        }
    )
    table.attrs["files"] = files
    return table


@question("Profiles of calls", "lines", needs="call_profiles")
def call_profiles(run: Run) -> pd.DataFrame:
    """List the files of the profiler of calls, for ``python -m pstats FILE`` and other viewers.

    Returns
    -------
    DataFrame
        A row a worker and function:

        - ``Worker``, ``Function``
        - ``Profiler``: cprofile
        - ``Task Runs``: those in it
        - ``Left Out``: task runs that were not profiled: another task run of the process was being
          profiled, another profiler was active, or the function had called too many functions.
          Tasks that are coroutines, and calls of actors, are not counted
        - ``File``: its path; it stands beside the trace file
        - ``Refused``: why this worker profiled nothing; empty where it did
    """
    table = run.call_profiles
    order = np.lexsort((table["worker_id"], table["name"].astype(str)))
    table = table.iloc[order]
    return pd.DataFrame(
        {
            "Worker": of_workers(run, table["worker_id"]),
            "Function": known_texts(table["name"]),
            "Profiler": known_texts(table["profiler"]),
            "Task Runs": whole(table["runs"].to_numpy(dtype=float)),
            "Left Out": whole(table["left_out"].to_numpy(dtype=float)),
            "File": known_texts(table["path"]),
            "Refused": known_texts(table["refused"]),
        }
    )


By = Literal["method", "actor"]

#: What is summed up of calls, and of what type.
_SUMS = {
    "Calls": "int64",
    "Failed": "int64",
    "Unanswered": "int64",
    "Time (s)": "float64",
    "Under Way (s)": "float64",
    "Mean (s)": "float64",
    "Median (s)": "float64",
    "Longest (s)": "float64",
}


@question("Calls of actors", "balance", needs="actor_calls")
def actor_calls(run: Run, by: By = "method") -> pd.DataFrame:
    """Sum up the calls of methods of actors, which are no tasks and hold no thread of tasks.

    A call counts from its arrival at the worker that has the actor until its answer. One thread of
    a worker runs the methods of all its actors in turns, coroutines aside, and the wait for it
    counts. Calls that had no answer when recording ended count until then; those of a worker that
    was killed are not there. Neither are those that an actor makes of another one on its own
    worker: they are parts of the calls around them.

    Parameters
    ----------
    by
        ``"method"``, or ``"actor"``: each actor by itself, all of its methods together.

    Returns
    -------
    DataFrame
        A row a method or actor, the longest time first: ``Actor`` (its class, as Dask names its
        key; or its key), ``Method`` or ``Worker``, ``Calls``, ``Failed`` (that raised something,
        or were given up), ``Unanswered`` (when recording ended), ``Time (s)`` (summed over
        calls, side by side ones too), ``Under Way (s)`` (the time in which there was one at
        least), ``Mean (s)``, ``Median (s)``, ``Longest (s)``.
    """
    calls = run.actor_calls
    if by == "method":
        codes, functions = run.keys.functions()
        actor = np.array(functions, dtype=object)[codes[calls["key_id"].to_numpy()]]
        second, other = "Method", text(calls["method"].astype(object).to_numpy())
    else:
        actor = run.keys.texts(calls["key_id"].to_numpy())
        second, other = "Worker", of_workers(run, calls["worker_id"])
    whose = pd.DataFrame({"Actor": text(actor), second: other})
    rows, groups = [], dict[Any, Any](whose.groupby(["Actor", second]).indices)
    for names, indices in groups.items():
        of_group = calls.iloc[indices]
        state, seconds = of_group["state"], of_group["duration"].to_numpy(dtype=float)
        start = of_group["start"].to_numpy(dtype=float)
        begins, ends = union(start, start + seconds)
        counts = len(state), (state == "failed").sum(), (state == "unanswered").sum()
        sums = seconds.sum(), (ends - begins).sum(), seconds.mean(), np.median(seconds)
        rows.append((*names, *counts, *sums, seconds.max()))
    dtypes: dict[str, Any] = {"Actor": object, second: object, **_SUMS}
    table = pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes)
    return table.sort_values("Time (s)", ascending=False, kind="stable", ignore_index=True)
