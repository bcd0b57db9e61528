"""What the client's program called of Dask, and where its time went."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import ClientTime, client_time_of, find_calls, find_sent
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, whole
from dasfprof.analysis.tables.questions import question


def has_client_calls(run: Run) -> bool:
    """Return whether what the client's program calls was recorded."""
    return len(run.client_calls) > 0


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
    needs=has_client_calls,
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


@question("Where the client's time went", "time", needs=has_client_calls)
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
    kept = [one for one in ClientTime if seconds.get(one, 0.0) > 0]
    times = np.array([seconds[one] for one in kept], dtype=float)
    return pd.DataFrame(
        {
            "Class": pd.Series([one.value for one in kept], dtype=object),
            "Time (s)": times,
            "Share (%)": times / (total or 1.0) * 100,
            "Meaning": pd.Series([one.meaning for one in kept], dtype=object),
        }
    )


def has_sent_values(run: Run) -> bool:
    """Return whether graphs held large values."""
    return len(run.sent_values) > 0


@question(
    "Large values in graphs", "balance", short="sent", expendable=("Code",), needs=has_sent_values
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
