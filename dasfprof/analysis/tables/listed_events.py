"""Tables of what was recorded one by one: logs, tracebacks, code, arguments, own events."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import annotation_texts
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import known_texts, of_function, of_workers, text, whole
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.under_way import RUN
from dasfprof.database.columns import Array


@question("What task runs logged", "events", expendable=("Logger", "Line"), needs="logs")
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
    table, functions = of_function(run, run.logs, function)
    return pd.DataFrame(
        {
            "Time (s)": run.since_begin(table["time"]),
            "Worker": of_workers(run, table["worker_id"]),
            "Function": text(functions),
            "Task Key": text(run.keys.texts(table["key_id"].to_numpy())),
            "Run ID": table["run_id"].to_numpy(),
            "Level": known_texts(table["level"]),
            "Logger": known_texts(table["logger"]),
            "Message": known_texts(table["message"]),
            "Exception": known_texts(table["exception"]),
            "Line": known_texts(table["line"]),
        }
    )


@question("Tracebacks", "events", expendable=("Traceback",), needs="tracebacks")
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
    table, functions = of_function(run, run.tracebacks, function)
    runs = run.tasks[[*RUN, "start", "exception"]].sort_values("start", kind="stable")
    of_key = runs.groupby("key_id")
    runs = runs.assign(attempt=of_key.cumcount() + 1, attempts=of_key["start"].transform("size"))
    attempt = table[RUN].merge(runs.drop_duplicates(RUN), how="left", on=RUN)
    return pd.DataFrame(
        {
            "Time (s)": run.since_begin(table["time"]),
            "Worker": of_workers(run, table["worker_id"]),
            "Function": text(functions),
            "Task Key": text(run.keys.texts(table["key_id"].to_numpy())),
            "Attempt": whole(attempt["attempt"].to_numpy(dtype=float)),
            "Attempts": whole(attempt["attempts"].to_numpy(dtype=float)),
            "Exception": known_texts(attempt["exception"].astype(object)),
            "Traceback": known_texts(table["text"].astype(object)),
        }
    )


@question("Code of functions", "lines", expendable=("Missing",), needs="function_code")
def function_code(run: Run, function: str | None = None) -> pd.DataFrame:
    """List the Python functions that tasks call, with their source.

    Parameters
    ----------
    function
        Of the tasks, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a function that tasks of one name call, the same on several workers once:

        - ``Function``: the name of the tasks; ``Code``: the function's own, with its module
        - ``File``, ``Line``
        - ``Source``: its first 100 lines, as they were when it ran; empty: see ``Missing``
        - ``Missing``: why there is none: the function is a library's, its file is not on the
          worker, as that of a notebook, or has changed since
    """
    table = run.function_code.sort_values(["name", "time"], kind="stable")
    if function is not None:
        table = table[(table["name"] == function).to_numpy()]
    table = table.drop_duplicates(["name", "function", "file", "line", "source"])
    return pd.DataFrame(
        {
            "Function": known_texts(table["name"]),
            "Code": known_texts(table["function"]),
            "File": known_texts(table["file"]),
            "Line": whole(table["line"].to_numpy(dtype=float)),
            "Source": known_texts(table["source"]),
            "Missing": known_texts(table["missing"]),
        }
    )


@question("Restarts, pauses, cancellations", "events", needs="cluster_changes")
def cluster_changes(run: Run) -> pd.DataFrame:
    """List who restarted, retired, paused or gave up workers, cancelled tasks, or adapted.

    Returns
    -------
    DataFrame
        A row a change, by time: ``Time (s)`` (from the trace's begin), ``Action``: ``restart``,
        ``retire``, ``worker-ttl`` (the scheduler gave a worker up that had sent no heartbeat for
        longer), ``pause``, ``resume``, ``cancel``, ``adapt``; ``Who`` asked: a client, ``worker``
        (for its memory), ``adaptive``, ``scheduler``, empty where nothing tells; ``Workers``, their
        labels; ``Number``: of tasks that were cancelled, or that a restart took away before they
        were sent to a worker; of workers that adaptive wants; of seconds without a heartbeat.
    """
    table = run.cluster_changes.sort_values("time", kind="stable")
    labels = dict(zip(run.workers["address"], run.workers["worker"], strict=True))
    workers = [
        ", ".join(str(labels.get(address, address)) for address in told or ())
        for told in table["workers"]
    ]
    return pd.DataFrame(
        {
            "Time (s)": run.since_begin(table["time"]),
            "Action": known_texts(table["action"]),
            "Who": known_texts(table["who"]),
            "Workers": text(workers),
            "Number": table["number"].to_numpy(dtype=float),
        }
    )


@question(
    "Events of user code",
    "events",
    short="events",
    overview=8,
    expendable=("Process", "Thread"),
    page="events",
    needs="events",
)
def own_events(run: Run) -> pd.DataFrame:
    """List the events that user code recorded, of kinds of its own.

    Returns
    -------
    DataFrame
        A row an event, by time: ``Event``, ``Kind`` (``span``, ``instant``; ``begin`` or ``end``
        where the other is missing), ``Start (s)`` (from the trace's begin), ``Duration (s)`` (NA
        where nothing tells, and of instants), ``Process`` and ``Thread`` as recorded, ``Args``
        (JSON). An event that begins and one that ends something, of one name, process and thread,
        are one row, with the args of both.
    """
    events = run.events.sort_values("time", kind="stable")
    return pd.DataFrame(
        {
            "Event": events["name"],
            "Kind": events["kind"],
            "Start (s)": run.since_begin(events["time"]),
            "Duration (s)": events["duration"].where(events["kind"] != "instant"),
            "Process": events["process"],
            "Thread": events["thread"],
            "Args": pd.Series([args_text(args) for args in events["args"]], events.index, object),
        }
    ).reset_index(drop=True)


def args_text(args: dict[str, Any]) -> str:
    """Write args as one line of JSON; what JSON has no form for as Python writes it."""
    return json.dumps(json_value(args), ensure_ascii=False) if args else ""


def json_value(value: Any) -> Any:
    """Return a value as JSON has it; numbers that are not finite, and bytes, as text."""
    if isinstance(value, dict):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else repr(value)


@question(
    "Arguments of task runs",
    "events",
    short="arguments",
    page="arguments",
    expendable=("Annotations", "Task Key"),
    needs="arguments",
)
def task_arguments(run: Run, function: str | None = None) -> pd.DataFrame:
    """List what task runs were called with, by type, dtype, shape and length.

    Known are those of runs of 10 ms and more, and of failed ones: the first 1,000 of each function
    on a worker.

    Parameters
    ----------
    function
        Of the task runs, as Dask calls it; None: any.

    Returns
    -------
    DataFrame
        A row a function, arguments and annotations, those with most seconds first:

        - ``Function``
        - ``Arguments``: name and type of each, with dtype and shape or length; ``result``: of
          another task. Values where they were asked for
        - ``Annotations``: priority, retries, resources, workers that Dask was asked for
        - ``Task Runs`` of those that are recorded, ``Time (s)`` of them, ``Median (s)``
        - ``Task Key`` of the first
    """
    table, tasks = run.arguments, run.tasks
    codes, names = run.keys.functions()
    functions = codes[table["key_id"].to_numpy(dtype=np.int64)]
    if function is not None:
        kept = functions == (names.index(function) if function in names else -1)
        table, functions = table[kept], functions[kept]
    runs = run_of_rows(run, table)
    annotations, annotation_names = annotation_texts(run)
    told = np.append(annotations, 0)[runs]
    arguments = table["arguments"].astype("category").cat
    pairs = pd.DataFrame({"f": functions, "a": arguments.codes.to_numpy(), "t": told})
    groups = pairs.groupby(["f", "a", "t"], sort=False).ngroup().to_numpy(dtype=np.int64)
    _, first = np.unique(groups, return_index=True)
    spent = np.append(tasks["duration"].to_numpy(dtype=float), np.nan)[runs]
    grouped = Groups(groups, len(first))
    seconds, medians = grouped.sum(spent), grouped.median(spent)
    order = np.argsort(-seconds, kind="stable")
    at = first[order]
    known = [*map(str, arguments.categories), ""]
    return pd.DataFrame(
        {
            "Function": text([str(names[code]) for code in functions[at].tolist()]),
            "Arguments": text([known[code] for code in arguments.codes.to_numpy()[at].tolist()]),
            "Annotations": text([annotation_names[code] for code in told[at].tolist()]),
            "Task Runs": grouped.sizes[order],
            "Time (s)": seconds[order],
            "Median (s)": medians[order],
            "Task Key": text(run.keys.texts(table["key_id"].to_numpy(dtype=np.int64)[at])),
        }
    )


def run_of_rows(run: Run, table: pd.DataFrame) -> Array:
    """Return the row of `Trace.tasks` of each row of a table of task runs; -1: there is none."""
    if not len(table) or not len(run.tasks):
        return np.full(len(table), -1, dtype=np.int64)
    runs = pd.MultiIndex.from_frame(run.tasks[RUN])
    first = np.flatnonzero(~runs.duplicated())
    found = runs[first].get_indexer(pd.MultiIndex.from_frame(table[RUN]))
    return np.where(found >= 0, first[found], -1)
