"""The critical path, the time to the first task, the graph itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import Stage, find_first_task
from dasfprof.analysis.model.critical_path import SegmentKind, path_segments, running_on_path
from dasfprof.analysis.model.links import NAMES, find_predecessors
from dasfprof.analysis.model.steps import step_groups
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import origin_columns, places_of, running_columns, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.progress import track

if TYPE_CHECKING:
    import networkx as nx

By = Literal["function", "step"]

#: The label of each kind of segment, and what it means.
KINDS = {
    SegmentKind.CLIENT: (
        "Client",
        "The client had not submitted the task yet. It may have waited for earlier results, or "
        "for calls of actors.",
    ),
    SegmentKind.SCHEDULER: (
        "Scheduler",
        "The task was on the scheduler, or the scheduler had not yet received or handled the "
        "message about its end.",
    ),
    SegmentKind.ON_ITS_WAY: (
        "Task in transit",
        "The task had been assigned to its worker, which had not received it yet.",
    ),
    SegmentKind.TRANSFER: ("Transfer", "The task's inputs were being fetched from other workers."),
    SegmentKind.WORKER: (
        "Worker",
        "The task was ready and a thread was free, but the worker had not started it.",
    ),
    SegmentKind.UNSPILL: ("Unspill", "Inputs were read back from disk."),
    SegmentKind.TASK_OVERHEAD: (
        "Task overhead",
        "The task occupied its thread before or after its function.",
    ),
    SegmentKind.COMPUTE: ("Compute", "The task's function ran."),
    SegmentKind.UNKNOWN: (
        "Unknown",
        "The task had not started on its worker. Without a file of the scheduler, or of the "
        "worker, the reason is unknown.",
    ),
    SegmentKind.LOST: (
        "Lost",
        "An attempt at the task, or its result, was on a worker that later left the cluster.",
    ),
}
_LABELS = np.array([KINDS[kind][0] for kind in SegmentKind], dtype=object)
_MEANINGS = np.array([KINDS[kind][1] for kind in SegmentKind], dtype=object)


@question("The critical path, segment by segment", "time")
def critical_path(run: Run) -> pd.DataFrame:
    """Return the chain of waits and work that made the run as long as it was.

    From the last finish it goes back to the first submission, through whatever each task run
    had to wait for last: the task before it on its thread, the dependency that was known
    last, a place in the scheduler's queue, or the client.

    Returns
    -------
    DataFrame
        A row a segment, in the order of time; they touch, and sum to the wall time from the
        first submission to the last known finish:

        - ``Start (s)`` (from the trace's begin), ``Duration (s)``
        - ``Kind``: ``Client``, ``Scheduler``, ``Transfer``, ``Worker`` (it had not begun the
          task though it could), ``Unspill``, ``Task overhead``, ``Compute``, ``Lost`` (with a
          worker, so that the task ran again)
        - ``Function``, ``Task Key``, ``Run ID``, ``Host``, ``Worker``: of the task run that
          waited or ran
        - ``Bound By``: what ties that run to the one before it on the path: ``dependency``,
          ``thread``, ``queue``, ``steal``, ``client``

    Notes
    -----
    Which event made the scheduler send a task is known by equal stimulus ids. Without a
    scheduler's file dependencies and threads are all that binds, and what else delays a
    task has the kind ``Unknown``. Dask does not record what a client waits for: it is taken
    to be the last of its futures that finished before it submitted the next; where a file
    does not tell which tasks had futures, the last task.
    """
    found, slots = path_segments(run), run.slots
    rows = found.rows
    return pd.DataFrame(
        {
            "Start (s)": found.begin,
            "Duration (s)": found.length,
            "Kind": text(_LABELS[found.kind]),
            "Function": text(np.array(slots.functions, dtype=object)[slots.function[rows]]),
            "Task Key": text(run.keys.texts(run.of_slots("key_id")[rows])),
            "Run ID": run.of_slots("run_id")[rows],
            **places_of(run, slots.worker[rows]),
            "Bound By": text(np.array(NAMES, dtype=object)[find_predecessors(run).kind[rows]]),
            **origin_columns(run, rows, run.unseen),
        }
    )


@question("The critical path, summed up", "time")
def critical_path_summary(run: Run, by: By = "function") -> pd.DataFrame:
    """Sum up the critical path by kind and function, or step.

    Parameters
    ----------
    by
        ``"function"`` or ``"step"``.

    Returns
    -------
    DataFrame
        A row a kind and function (or step), the longest first: ``Kind``, ``Function`` (or
        ``Step``, ``(no step)`` for tasks of none), ``Duration (s)``, ``Share (%)`` of the path,
        ``Task Runs``; what of it functions spent in ``CPU (s)``, ``Waiting for a core
        (s)``, ``Waiting for storage (s)`` and ``Blocked (s)`` (NA for other kinds, and where nobody
        recorded it); ``Meaning`` of the kind.
    """
    slots, found = run.slots, path_segments(run)
    if by == "step":
        codes, names = step_groups(run.tasks, run.unseen)
    else:
        codes, names = slots.function, slots.functions
    pairs, distinct = pd.factorize(found.kind * len(names) + codes[found.rows].astype(np.int64))
    groups = Groups(pairs, len(distinct))
    kinds, labels = np.divmod(distinct, max(len(names), 1))
    seconds = groups.sum(found.length)
    runs = np.unique(np.stack([pairs, found.rows]), axis=1)[0]
    summary = pd.DataFrame(
        {
            "Kind": text(_LABELS[kinds]),
            by.capitalize(): text(np.array(names, dtype=object)[labels]),
            "Duration (s)": seconds,
            "Share (%)": ratio(seconds, found.length.sum()) * 100,
            "Task Runs": np.bincount(runs, minlength=len(distinct)),
            **running_columns(running_on_path(run), groups.told),
            "Meaning": text(_MEANINGS[kinds]),
        }
    )
    order = np.argsort(-seconds, kind="stable")
    return summary.take(order).reset_index(drop=True)


#: What each stage is called here.
LABELS = {
    Stage.PROMPT: "Waiting for input",
    Stage.PROGRAM: "Program",
    Stage.OPTIMISING: "Optimising",
    Stage.PICKLING: "Pickling",
    Stage.SENDING: "Sending",
    Stage.SCHEDULER: "Scheduler",
    Stage.WORKERS: "Waiting for workers",
    Stage.STARTING: "Starting",
}


@question("Time to the first task", "time", expendable=("Share (%)",))
def time_to_first_task(run: Run) -> pd.DataFrame:
    """Split the time from the begin of recording to the first task.

    Returns
    -------
    DataFrame
        A row a stage, in their order: ``Stage``, ``Time (s)`` (NA: not recorded), ``Share (%)``
        (of them all, where the whole is known). None where tasks ran before recording began.

        - ``Waiting for input``: the client's program waited at the prompt of a notebook or a shell;
          looked at once a second
        - ``Program``: it ran, before it sent a graph: what it imports, reads and builds. With
          optimising, where that is unknown; `client_activity` has its lines
        - ``Optimising``: Dask optimised the collections, in the client's process
        - ``Pickling``: it pickled the graph there
        - ``Sending``: until the scheduler took the graph up; unknown between hosts
        - ``Scheduler``: it unpickled the graph and prepared its tasks; Dask optimises some here
        - ``Waiting for workers``: there was none
        - ``Starting``: until a worker gave the first task a thread
    """
    found = find_first_task(run)
    stages = {} if found is None else found.stages
    seconds = np.array(list(stages.values()), dtype=float)
    whole = np.nan if found is None else found.seconds
    return pd.DataFrame(
        {
            "Stage": text([LABELS[stage] for stage in stages]),
            "Time (s)": seconds,
            "Share (%)": seconds / whole * 100 if whole > 0 else np.full(len(seconds), np.nan),
        }
    )


def create_annotated_task_graph(run: Run, *, progress: bool = False) -> nx.DiGraph[str]:
    """Return the task graph with what is known of each task; see `TraceAnalyser`."""
    import networkx as nx

    tasks, texts = run.tasks, run.keys.texts(np.arange(len(run.keys)))
    offsets, dependencies = run.dependencies
    graph: nx.DiGraph[str] = nx.DiGraph()
    last = tasks.drop_duplicates("key_id", keep="last")
    columns = ("function", "size", "shape", "type", "duration", "input_size")
    names = ("name", *columns[1:-1], "input_data_size")
    lists = [last[column].astype(object).tolist() for column in columns]
    rows = zip(last["key_id"].tolist(), *lists, strict=True)
    bar = track(rows, "Creating annotated task graph", shown=progress, total=len(last), unit="task")
    for key_id, *values in bar:
        about: dict[str, Any] = dict(zip(names, values, strict=True))
        seconds, size = about["duration"], about["input_data_size"]
        about["throughput"] = size / seconds if seconds > 0 else float("nan")
        graph.add_node(texts[key_id], **about)
    counts = np.diff(offsets)
    tasks_of = np.repeat(np.arange(len(counts)), counts)
    graph.add_edges_from(zip(texts[dependencies].tolist(), texts[tasks_of].tolist(), strict=True))
    return graph
