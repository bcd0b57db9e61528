"""What task runs logged."""

from __future__ import annotations

import pandas as pd

from dasfprof.analysis.model.run import Run
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.tables.shared_columns import known_texts, of_function, text
from dasfprof.analysis.trace import Trace


def has_logs(trace: Trace) -> bool:
    """Return whether a task run logged anything that is recorded."""
    return len(trace.logs) > 0


@question("What task runs logged", "events", expendable=("Logger", "Line"), needs=has_logs)
def logs(run: Run, function: str | None = None) -> pd.DataFrame:
    """List what task runs logged by `logging`, from the level on that the run was recorded with.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a record, by time: ``Time (s)`` (from the trace's begin), ``Worker``, ``Function``,
        ``Task Key``, ``Run ID``, ``Level``, ``Logger``, ``Message`` (as the program wrote it, its
        values not filled in, unless that was asked for), ``Exception`` (its type; empty: none),
        ``Line`` (file:line function). What a task prints is among them only with
        ``record_prints=True``: its level is PRINT, its message the line. What a coroutine or a
        thread of its own logs is not; of a task run there are 20 records and its first error.
    """
    table, functions = of_function(run, run.trace.logs, function)
    labels = run.labels
    return pd.DataFrame(
        {
            "Time (s)": run.since(table["time"].to_numpy()),
            "Worker": text(labels[table["worker_id"].to_numpy()]),
            "Function": text(functions),
            "Task Key": text(run.trace.keys.texts(table["key_id"].to_numpy())),
            "Run ID": table["run_id"].to_numpy(),
            "Level": known_texts(table["level"]),
            "Logger": known_texts(table["logger"]),
            "Message": known_texts(table["message"]),
            "Exception": known_texts(table["exception"]),
            "Line": known_texts(table["line"]),
        }
    )
