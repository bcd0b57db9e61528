"""The tracebacks of failed attempts."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import known_texts, of_function, text, whole
from dasfprof.analysis.trace import Trace
from dasfprof.analysis.trace.under_way import RUN


def has_tracebacks(trace: Trace) -> bool:
    """Return whether a task run failed with a traceback that is recorded."""
    return len(trace.tracebacks) > 0


@question("Tracebacks", "events", expendable=("Traceback",), needs=has_tracebacks)
def tracebacks(run: Run, function: str | None = None) -> pd.DataFrame:
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
    table, functions = of_function(run, run.trace.tracebacks, function)
    runs = run.ended.tasks[[*RUN, "start", "exception"]].sort_values("start", kind="stable")
    of_key = runs.groupby("key_id")
    runs = runs.assign(attempt=of_key.cumcount() + 1, attempts=of_key["start"].transform("size"))
    found = table[RUN].merge(runs.drop_duplicates(RUN), how="left", on=RUN)
    labels = run.labels
    return pd.DataFrame(
        {
            "Time (s)": run.since(table["time"].to_numpy()),
            "Worker": text(labels[table["worker_id"].to_numpy()]),
            "Function": text(functions),
            "Task Key": text(run.trace.keys.texts(table["key_id"].to_numpy())),
            "Attempt": whole(found["attempt"].to_numpy(dtype=float)),
            "Attempts": whole(found["attempts"].to_numpy(dtype=float)),
            "Exception": known_texts(found["exception"].astype(object)),
            "Traceback": known_texts(table["text"].astype(object)),
        }
    )
