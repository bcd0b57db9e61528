"""Recorded events as lists: logs, tracebacks, source code, arguments, and events of user code."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.model.steps import annotation_texts
from dasfprof.analysis.numeric.groups import Groups
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import integers, known_texts, of_function, run_of_rows, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.under_way import RUN


@question("Log records of task runs", "events", expendable=("Logger", "Line"), needs="logs")
def logs(run: Run, function: str | None = None) -> pd.DataFrame:
    """List the log records of task runs, from the level that was set for the recording.

    Parameters
    ----------
    function
        The task prefix of the task runs. None selects all task runs.

    Returns
    -------
    DataFrame
        One row per record, by time:

        - ``Time (s)``, since the start of the run
        - ``Worker``, ``Function``, ``Task Key``, ``Run ID``, ``Level``, ``Logger``
        - ``Message``: its text in the source code. The values of its arguments are inserted only if
          recording them was requested
        - ``Exception``: its type, or empty
        - ``Line``: file, line and function

        Printed lines, and records of coroutines and of threads that a task starts, are missing. At
        most 20 records and the first error of each task run are kept.
    """
    table, of_runs = of_function(run, run.logs, function)
    return pd.DataFrame(
        {
            **of_runs,
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
    """List the failed attempts at tasks with their tracebacks.

    Parameters
    ----------
    function
        The task prefix of the task runs. None selects all task runs.

    Returns
    -------
    DataFrame
        One row per failed task run, by time:

        - ``Time (s)``: when it failed, since the start of the run
        - ``Worker``, ``Function``, ``Task Key``
        - ``Attempt``, ``Attempts``: which attempt at the task this was (from 1), and how many
          attempts at it were recorded
        - ``Exception``
        - ``Traceback``: shortened in the middle if it is long, and without source lines if
          ``record_code=False``

        Each worker records at most 1000 tracebacks.
    """
    table, of_runs = of_function(run, run.tracebacks, function)
    runs = run.tasks[[*RUN, "start", "exception"]].sort_values("start", kind="stable")
    of_key = runs.groupby("key_id")
    runs = runs.assign(attempt=of_key.cumcount() + 1, attempts=of_key["start"].transform("size"))
    attempt = table[RUN].merge(runs.drop_duplicates(RUN), how="left", on=RUN)
    return pd.DataFrame(
        {
            **of_runs,
            "Attempt": integers(attempt["attempt"].to_numpy(dtype=float)),
            "Attempts": integers(attempt["attempts"].to_numpy(dtype=float)),
            "Exception": known_texts(attempt["exception"].astype(object)),
            "Traceback": known_texts(table["text"].astype(object)),
        }
    )


@question("Source of functions", "lines", expendable=("Missing",), needs="function_code")
def function_code(run: Run, function: str | None = None) -> pd.DataFrame:
    """List the Python functions that tasks call, with their source.

    Parameters
    ----------
    function
        The task prefix of the tasks. None selects all tasks.

    Returns
    -------
    DataFrame
        One row per function and task prefix, without duplicates from several workers:

        - ``Function``: the task prefix
        - ``Code``: qualified name of the called function, with its module
        - ``File``, ``Line``
        - ``Source``: its first 100 lines when it ran, or empty
        - ``Missing``: why there is no source: the function belongs to a library, or its file is not
          on the worker (such as a notebook's), or the file has changed
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
            "Line": integers(table["line"].to_numpy(dtype=float)),
            "Source": known_texts(table["source"]),
            "Missing": known_texts(table["missing"]),
        }
    )


@question("Restarts, pauses, cancellations", "events", needs="cluster_changes")
def cluster_changes(run: Run) -> pd.DataFrame:
    """List restarts, retirements, pauses and cancellations, and who requested them.

    Returns
    -------
    DataFrame
        One row per change, by time:

        - ``Time (s)``, since the start of the run
        - ``Action``: ``restart``, ``retire``, ``worker-ttl`` (the scheduler removed a worker whose
          heartbeats stopped for that long), ``pause``, ``resume``, ``cancel`` or ``adapt``
        - ``Who`` requested it: a client, ``worker`` (because of its memory), ``adaptive``,
          ``scheduler``, or empty if unknown
        - ``Workers``: their labels
        - ``Number``: of cancelled tasks; of tasks that a restart discarded before they were
          assigned; of workers that adaptive scaling requests; or of seconds without a heartbeat
    """
    table = run.cluster_changes.sort_values("time", kind="stable")
    labels = dict(zip(run.workers["address"], run.workers["worker"], strict=True))
    workers = [
        ", ".join(str(labels.get(address, address)) for address in addresses or ())
        for addresses in table["workers"]
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
    """List the events that user code recorded.

    Returns
    -------
    DataFrame
        One row per event, by time:

        - ``Event``
        - ``Kind``: ``span``, ``instant``, or ``begin`` or ``end`` if its counterpart is missing
        - ``Start (s)``, since the start of the run
        - ``Duration (s)``: NA for instants, and if it is unknown
        - ``Process``, ``Thread``: as recorded
        - ``Args``: JSON

        A begin event and an end event with the same name, process and thread form one row with the
        args of both.
    """
    events = run.events.sort_values("time", kind="stable")
    args = [
        json.dumps(json_value(args), ensure_ascii=False) if args else "" for args in events["args"]
    ]
    return pd.DataFrame(
        {
            "Event": events["name"],
            "Kind": events["kind"],
            "Start (s)": run.since_begin(events["time"]),
            "Duration (s)": events["duration"].where(events["kind"] != "instant"),
            "Process": events["process"],
            "Thread": events["thread"],
            "Args": pd.Series(args, events.index, object),
        }
    ).reset_index(drop=True)


def json_value(value: Any) -> Any:
    """Return a JSON-compatible value. Bytes and numbers that are not finite become text."""
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
    """List the arguments of task runs by type, dtype, shape and length.

    Arguments are recorded for task runs of at least 10 ms and for failed ones, up to 1,000 per
    function and worker.

    Parameters
    ----------
    function
        The task prefix of the task runs. None selects all task runs.

    Returns
    -------
    DataFrame
        One row per combination of function, arguments and annotations, sorted by seconds in
        descending order:

        - ``Function``
        - ``Arguments``: name and type of each, with dtype and shape or length. ``result`` marks the
          result of another task. Values are included if recording them was requested
        - ``Annotations``: priority, retries, resources and workers that were passed to Dask
        - ``Task Runs``, ``Time (s)``, ``Median (s)``: number, total and median time of the recorded
          task runs
        - ``Task Key`` of the first task run
    """
    table, tasks = run.arguments, run.tasks
    codes, names = run.keys.functions()
    functions = codes[table["key_id"].to_numpy(dtype=np.int64)]
    if function is not None:
        selected = functions == (names.index(function) if function in names else -1)
        table, functions = table[selected], functions[selected]
    runs = run_of_rows(tasks, table)
    annotations, annotation_names = annotation_texts(tasks)
    annotation = np.append(annotations, 0)[runs]
    arguments = table["arguments"].astype("category").cat
    pairs = pd.DataFrame({"f": functions, "a": arguments.codes.to_numpy(), "t": annotation})
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
            "Annotations": text([annotation_names[code] for code in annotation[at].tolist()]),
            "Task Runs": grouped.sizes[order],
            "Time (s)": seconds[order],
            "Median (s)": medians[order],
            "Task Key": text(run.keys.texts(table["key_id"].to_numpy(dtype=np.int64)[at])),
        }
    )
