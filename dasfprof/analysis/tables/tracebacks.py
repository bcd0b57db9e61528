"""The tracebacks of failed attempts."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import known_texts, of_function, text, whole
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RUN


def has_tracebacks(trace: Trace) -> bool:
    """Return whether a task run failed with a traceback that is recorded."""
    return len(trace.tracebacks) > 0


@question("Tracebacks", "events", expendable=("Traceback",), needs=has_tracebacks)
def tracebacks(trace: Trace, function: str | None = None) -> pd.DataFrame:
    """List the failed attempts at tasks, each with its whole traceback.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a failed task run, by time: ``Time (s)`` (it had failed, from the trace's begin),
        ``Worker``, ``Function``, ``Task Key``, ``Attempt`` of ``Attempts`` of this key that workers
        recorded, ``Exception``, ``Traceback`` (of a long one its begin and end; without lines of
        the source if ``record_code=False``). Each worker records 1000 of them.
    """
    table, functions = of_function(trace, trace.tracebacks, function)
    runs = trace.tasks[[*RUN, "start", "exception"]].sort_values("start", kind="stable")
    of_key = runs.groupby("key_id")
    runs = runs.assign(attempt=of_key.cumcount() + 1, attempts=of_key["start"].transform("size"))
    run = table[RUN].merge(runs.drop_duplicates(RUN), how="left", on=RUN)
    labels = trace.workers["worker"].astype(object).to_numpy()
    return pd.DataFrame(
        {
            "Time (s)": table["time"].to_numpy() - trace.begin,
            "Worker": text(labels[table["worker_id"].to_numpy()]),
            "Function": text(functions),
            "Task Key": text(trace.keys.texts(table["key_id"].to_numpy())),
            "Attempt": whole(run["attempt"].to_numpy(dtype=float)),
            "Attempts": whole(run["attempts"].to_numpy(dtype=float)),
            "Exception": known_texts(run["exception"].astype(object)),
            "Traceback": known_texts(table["text"].astype(object)),
        }
    )
