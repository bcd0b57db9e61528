"""The critical path, the time to the first task, and the task graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from dasfprof.analysis.model.client_time import Stage, find_first_task
from dasfprof.analysis.model.critical_path import SegmentKind, path_segments, running_on_path
from dasfprof.analysis.model.links import NAMES, find_predecessors
from dasfprof.analysis.model.steps import groups_by
from dasfprof.analysis.numeric.groups import Groups, ratio
from dasfprof.analysis.run import Run
from dasfprof.analysis.tables.columns import origin_columns, places_of, running_columns, text
from dasfprof.analysis.tables.questions import question
from dasfprof.analysis.trace.progress import track

if TYPE_CHECKING:
    import networkx as nx

By = Literal["function", "step"]

#: Label and meaning of each kind of segment on the critical path.
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


@question("Critical path by segment", "time")
def critical_path(run: Run) -> pd.DataFrame:
    """Return the critical path: the chain of waits and work that determined the wall time.

    The path is followed backwards, from the last finish to the first submission. Each task run
    leads to whatever it waited for last: the previous task on its thread, the last known
    dependency, a slot in the scheduler's queue, or the client.

    Returns
    -------
    DataFrame
        One row per segment, by time. The segments have no gaps, and sum to the wall time from the
        first submission to the last known finish:

        - ``Start (s)``, since the start of the run, and ``Duration (s)``
        - ``Kind``: ``Client``, ``Scheduler``, ``Task in transit``, ``Transfer``, ``Worker`` (the
          task could have started, but the worker had not started it), ``Unspill``, ``Task
          overhead``, ``Compute``, ``Lost`` (a worker was lost, so the task ran again), ``Unknown``
        - ``Function``, ``Task Key``, ``Run ID``, ``Host``, ``Worker``: of the task run that waited
          or ran
        - ``Bound By``: what connects this task run to the previous one on the path (``dependency``,
          ``thread``, ``queue``, ``steal`` or ``client``), or empty if unknown

    Notes
    -----
    Equal stimulus ids show which event made the scheduler assign a task. Without a scheduler's
    file, only dependencies and threads connect task runs, and other delays have the kind
    ``Unknown``. Dask does not record what a client waits for. The client is assumed to have waited
    for the last of its futures that finished before it submitted the next graph. If no file
    records the futures, it is assumed to have waited for the last task.
    """
    segments, slots = path_segments(run), run.slots
    rows = segments.rows
    return pd.DataFrame(
        {
            "Start (s)": segments.begin,
            "Duration (s)": segments.length,
            "Kind": text(_LABELS[segments.kind]),
            "Function": text(np.array(slots.functions, dtype=object)[slots.function[rows]]),
            "Task Key": text(run.keys.texts(run.of_slots("key_id")[rows])),
            "Run ID": run.of_slots("run_id")[rows],
            **places_of(run, slots.worker[rows]),
            "Bound By": text(np.array(NAMES, dtype=object)[find_predecessors(run).kind[rows]]),
            **origin_columns(run, rows, run.tasks, run.unseen),
        }
    )


@question("Critical path by kind", "time")
def critical_path_summary(run: Run, by: By = "function") -> pd.DataFrame:
    """Sum up the critical path by kind and function, or by kind and step.

    Parameters
    ----------
    by
        ``"function"`` or ``"step"``.

    Returns
    -------
    DataFrame
        One row per kind and function (or step), sorted by duration in descending order:

        - ``Kind``
        - ``Function``; or ``Step``, with ``(no step)`` for tasks without one
        - ``Duration (s)``, ``Share (%)`` of the path
        - ``Task Runs``: number of task runs
        - ``CPU (s)``, ``Waiting for CPU (s)``, ``Waiting for storage (s)``, ``Blocked (s)``: parts
          of the duration in which functions ran, see `per_function_bottleneck`. NA for other kinds,
          or if not recorded
        - ``Meaning`` of the kind
    """
    segments, (codes, names) = path_segments(run), groups_by(by, run.tasks, run.unseen)
    labels = codes[segments.rows].astype(np.int64)
    pairs, distinct = pd.factorize(segments.kind * len(names) + labels)
    groups = Groups(pairs, len(distinct))
    kinds, labels = np.divmod(distinct, len(names))
    seconds = groups.sum(segments.length)
    runs = np.unique(np.stack([pairs, segments.rows]), axis=1)[0]
    summary = pd.DataFrame(
        {
            "Kind": text(_LABELS[kinds]),
            by.capitalize(): text(np.array(names, dtype=object)[labels]),
            "Duration (s)": seconds,
            "Share (%)": ratio(seconds, segments.length.sum()) * 100,
            "Task Runs": np.bincount(runs, minlength=len(distinct)),
            **running_columns(running_on_path(run), groups.known_sum),
            "Meaning": text(_MEANINGS[kinds]),
        }
    )
    order = np.argsort(-seconds, kind="stable")
    return summary.take(order).reset_index(drop=True)


#: Label of each stage before the first task.
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
    """Split the time from the start of recording to the first task into stages.

    Returns
    -------
    DataFrame
        One row per stage, in order, with ``Stage``, ``Time (s)`` (NA if not recorded) and ``Share
        (%)`` of the total (NA if the total is unknown). Empty if tasks ran before recording began.
        The stages are:

        - ``Waiting for input``: your program waited at the prompt of a notebook or a shell. Sampled
          once per second
        - ``Program``: your program imported, read and built things before it submitted a graph.
          This includes optimising if that time is unknown. `client_activity` shows the lines
        - ``Optimising``: Dask optimised the collections in the client's process
        - ``Pickling``: the client pickled the graph
        - ``Sending``: until the scheduler started to process the graph. Unknown between hosts
        - ``Scheduler``: the scheduler unpickled the graph and prepared its tasks, and may have
          optimised it
        - ``Waiting for workers``: there was no worker
        - ``Starting``: until a worker gave the first task a thread
    """
    first_task = find_first_task(run)
    stages = {} if first_task is None else first_task.stages
    seconds = np.array(list(stages.values()), dtype=float)
    total = np.nan if first_task is None else first_task.seconds
    return pd.DataFrame(
        {
            "Stage": text([LABELS[stage] for stage in stages]),
            "Time (s)": seconds,
            "Share (%)": seconds / total * 100 if total > 0 else np.full(len(seconds), np.nan),
        }
    )


def create_annotated_task_graph(run: Run, *, progress: bool = False) -> nx.DiGraph[str]:
    """Return the task graph with the attributes of each task. See `TraceAnalyser`."""
    import networkx as nx

    tasks, texts = run.tasks, run.keys.texts(np.arange(len(run.keys)))
    offsets, dependencies = run.dependencies
    graph: nx.DiGraph[str] = nx.DiGraph()
    last = tasks.drop_duplicates("key_id", keep="last")
    facts = last[["function", "size", "shape", "type", "duration", "input_size"]].astype(object)
    facts = facts.rename(columns={"function": "name", "input_size": "input_data_size"})
    facts["throughput"] = last["input_size"] / last["duration"].where(last["duration"] > 0)
    rows: Any = zip(texts[last["key_id"]], facts.to_dict("records"), strict=True)
    graph.add_nodes_from(
        track(rows, "Creating annotated task graph", shown=progress, total=len(last), unit="task")
    )
    counts = np.diff(offsets)
    tasks_of = np.repeat(np.arange(len(counts)), counts)
    graph.add_edges_from(zip(texts[dependencies].tolist(), texts[tasks_of].tolist(), strict=True))
    return graph
