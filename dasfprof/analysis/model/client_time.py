"""Time of the client: before the first task, in calls of Dask, and for embedded values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from dasfprof.analysis.numeric.intervals import overlap
from dasfprof.analysis.run import Run
from dasfprof.analysis.trace.columns import row_of
from dasfprof.analysis.trace.trace import once_per_trace
from dasfprof.database.columns import Array

#: Prefix of the stimulus id that Dask gives to events caused by a graph. The rest of the id is the
#: time at which Dask received the graph.
_UPDATE = "update-graph-"
#: Maximum seconds that the scheduler needs for a graph. If the difference is larger, the number in
#: the id is not a time.
_LONGEST = 3600.0
#: Tolerance in seconds for clocks that differ: if a task seems to start earlier than this before
#: the first graph, recording began too late.
_BEFORE = 0.01
#: Parts of the file names of programs that wait for input of their user, and the functions in which
#: these programs execute the input.
_PROMPTS = ("/ipykernel/", "/IPython/", "/_pyrepl/", "/prompt_toolkit/")
_RUNS_INPUT = ("run_code", "runcode", "run_cell")


class Stage(str, Enum):
    """Stages before the first task, in order."""

    #: The program waited for its user at the prompt of a notebook or a shell.
    PROMPT = "input"
    #: The program ran before it sent a graph. Includes optimizing if that is unknown.
    PROGRAM = "program"
    #: Dask optimized the program's collections in the client.
    OPTIMISING = "optimising"
    #: Dask pickled the graph in the client.
    PICKLING = "pickling"
    #: The graph was in transit until the scheduler received it.
    SENDING = "sending"
    #: The scheduler unpickled the graph and prepared its tasks, which may include optimizing.
    SCHEDULER = "scheduler"
    #: The tasks were known, but there was no worker.
    WORKERS = "workers"
    #: There was a worker, but the first task had no thread yet.
    STARTING = "starting"


#: Stages for which the program is responsible, before the scheduler knows a task.
_LATE = (Stage.PROGRAM, Stage.OPTIMISING, Stage.PICKLING, Stage.SENDING, Stage.SCHEDULER)


@dataclass(frozen=True)
class FirstTask:
    """The time before the first task of a run."""

    #: Seconds of each stage, or NaN if unknown.
    stages: dict[Stage, float]
    #: Seconds from the start of recording to the start of the first task. NaN if unknown, or if the
    #: two times are from different clocks.
    seconds: float
    #: Known part of `seconds` that passed before the scheduler had tasks. Waits at a prompt do not
    #: count.
    late: float


@once_per_trace
def find_first_task(run: Run) -> FirstTask | None:
    """Return the time before the first task, or None if it was not recorded."""
    times, executing = run.graphs["time"].to_numpy(dtype=float), run.slots.times.executing
    if not np.isfinite(times).any() or not len(executing):
        return None
    graph = row_of(run.graphs, int(np.nanargmin(times)))
    known, executing = float(graph["time"]), run.begin + executing
    # Recording began after the first task.
    if not executing.min() >= known - _BEFORE:
        return None
    joined = run.workers["joined"].to_numpy(dtype=float)
    there = max(float(np.nanmin(joined)), known) if np.isfinite(joined).any() else known
    first = max(float(executing.min()), there)
    stages = dict.fromkeys(Stage, np.nan)
    begin = _of_the_client(run, graph, stages)
    stages[Stage.WORKERS], stages[Stage.STARTING] = there - known, first - there
    late = known - begin - stages[Stage.PROMPT]
    if np.isnan(late):
        late = float(np.nansum([stages[stage] for stage in _LATE]))
    return FirstTask(stages, first - begin, late)


def _of_the_client(run: Run, graph: dict[Any, Any], stages: dict[Stage, float]) -> float:
    """Add to `stages` the durations of the stages before the scheduler knew a graph.

    `graph` is a row of `Trace.graphs`. The result is the time at which recording started, by the
    scheduler's clock, or NaN if unknown.
    """
    known, received = float(graph["time"]), _taken_up(run, graph)
    stages[Stage.SCHEDULER] = known - received
    clients = run.graphs_sent["client"].tolist()
    if graph["client"] not in clients:
        return np.nan
    sent = row_of(run.graphs_sent, clients.index(graph["client"]))
    workers = zip(run.workers["kind"], run.workers["host"], strict=True)
    same_clock = ("scheduler", sent["host"]) in set(workers)
    if same_clock and sent["start"] > known:  # The client's first graph was sent before recording.
        return np.nan
    since, start, ended = (float(sent[name]) for name in ("since", "start", "time"))
    if same_clock:
        # The scheduler may handle the graph before the client's call has returned.
        ended = max(min(ended, received if np.isfinite(received) else known), start)
        stages[Stage.SENDING] = received - ended
    optimising = float(np.nan_to_num(sent["optimising"]))
    stages[Stage.PROMPT] = at_a_prompt(run, since, start - optimising)
    stages[Stage.PROGRAM] = max(start - optimising - since - stages[Stage.PROMPT], 0.0)
    stages[Stage.OPTIMISING] = float(sent["optimising"])
    stages[Stage.PICKLING] = ended - start
    return since if same_clock else np.nan


def _taken_up(run: Run, graph: dict[Any, Any]) -> float:
    """Return when the scheduler received a graph, from the stimulus id of the graph, or NaN."""
    text = str(run.stimuli.texts(np.array([graph["stimulus"]]))[0])
    try:
        time = float(text.removeprefix(_UPDATE))
    except ValueError:
        return np.nan
    return time if 0 <= float(graph["time"]) - time < _LONGEST else np.nan


def at_a_prompt(run: Run, begin: float, end: float) -> float:
    """Return the seconds for which the client's main thread waited for its user, to within 1 s."""
    seen = run.clients_under_way
    idle = np.array([_waits_for_input(run, row) for row in seen["stack"].tolist()], dtype=bool)
    times = np.clip(np.append(seen["time"].to_numpy(dtype=float), np.inf), begin, max(begin, end))
    return float(np.diff(times)[idle].sum())


def _waits_for_input(run: Run, stack: int) -> bool:
    if stack < 0:
        return False
    frames = run.stacks["frames"].iloc[stack]
    functions = {str(function).rpartition(".")[2] for function, *_ in frames}
    files = [str(file) for _, file, *_ in frames]
    return not functions & {*_RUNS_INPUT} and any(
        prompt in file for file in files for prompt in _PROMPTS
    )


#: Kind of the row that contains the time range in which the client was recorded.
RECORDING = "recording"
#: Threshold (number of calls): a line requests results one at a time. Then threshold in bytes: a
#: result is large.
_MANY, LARGE = 50, 1_000_000
#: A row that sums up several calls counts as inside a time range if at least the fraction `_INSIDE`
#: of its duration is inside. If rows that are only partly inside cover more than the fraction
#: `_UNKNOWN` of the time range, the result is unknown.
_INSIDE, _UNKNOWN = 0.9, 0.1
_LINE = ["call", "file", "line", "code"]
_SUMS = (
    *("calls", "keys", "seconds", "waiting", "receiving", "deserialising"),
    *("tokenising", "optimising", "pickling", "received", "sent"),
)


class ClientTime(str, Enum):
    """A category of the time of the client's main thread."""

    #: The client waited for results to be computed, or for an answer.
    WAITING = "Waits for results"
    #: Results were received and deserialized.
    RECEIVING = "Receives results"
    #: Graphs were built, tokenized, optimized, pickled, and handed to the connection.
    PREPARING = "Prepares graphs"
    #: Data was sent to the cluster.
    SCATTERING = "Scatters data"
    #: The program was in none of these calls. It may have built collections.
    PROGRAM = "Its own code"


@once_per_trace
def find_calls(run: Run) -> pd.DataFrame:
    """Return the client's calls of Dask, summed up by kind and line, longest first."""
    calls = run.client_calls
    calls = calls[(calls["call"].astype(object) != RECORDING).to_numpy()]
    calls = calls.astype(dict.fromkeys(("call", "file", "code"), object))
    groups = calls.groupby(_LINE, dropna=False, sort=False)
    ends = {"longest": "max", "time": "min", "stop": "max"}
    lines = groups.agg({**dict.fromkeys(_SUMS, "sum"), **ends}).reset_index()
    return lines.sort_values("seconds", ascending=False, kind="stable", ignore_index=True)


@once_per_trace
def single_calls(run: Run) -> pd.DataFrame:
    """Return the rows of `find_calls` that request many small results one at a time.

    ``in_vain`` contains the seconds that a single call for all results would have saved. Rows are
    sorted by ``in_vain`` in descending order.
    """
    calls = find_calls(run)
    few = (calls["keys"] <= 1.5 * calls["calls"]) & (calls["received"] < LARGE * calls["keys"])
    calls = calls[(few & (calls["calls"] >= _MANY) & (calls["receiving"] > 0)).to_numpy()]
    # A single call deserializes all results, and takes as long to receive as the mean call.
    necessary = calls["deserialising"] + calls["receiving"] / calls["calls"]
    calls = calls.assign(in_vain=(calls["receiving"] - necessary).clip(lower=0))
    return calls.sort_values("in_vain", ascending=False, kind="stable", ignore_index=True)


def meanwhile(run: Run, begins: Array, ends: Array) -> dict[ClientTime, float]:
    """Return the client's seconds by category, summed over several time ranges.

    `begins` and `ends` are the Unix times of the ranges, which are sorted and disjoint. The result
    is empty if too much of this time is unknown.
    """
    table = run.client_calls
    main = table[(table["main"] == 1).to_numpy() & (table["call"].astype(object) != RECORDING)]
    start, stop, seconds, waiting, receiving = (
        main[name].to_numpy(dtype=float)
        for name in ("time", "stop", "seconds", "waiting", "receiving")
    )
    within = _within(start, stop, begins, ends)
    # A row may sum up several calls. If it is only partly inside a range, it is unknown which of
    # its calls were inside.
    alone, inside = main["calls"].to_numpy() <= 1, within >= _INSIDE * (stop - start)
    if within[~alone & ~inside].sum() > _UNKNOWN * (ends - begins).sum():
        return {}
    # Within a call, the client first prepares, then waits, then receives.
    came = np.where(alone, start + seconds, stop) - receiving
    seconds = np.where(alone, within, np.minimum(seconds, within))
    waiting = np.where(alone, _within(came - waiting, came, begins, ends), waiting)
    receiving = np.where(alone, _within(came, came + receiving, begins, ends), receiving)
    scatters = (main["call"].astype(object) == "scatter").to_numpy()
    computes, scatters = (alone | inside) & ~scatters, (alone | inside) & scatters
    by_class = {
        ClientTime.WAITING: float(waiting[computes].sum()),
        ClientTime.RECEIVING: float(receiving[computes].sum()),
        ClientTime.PREPARING: float((seconds - waiting - receiving)[computes].sum()),
        ClientTime.SCATTERING: float(seconds[scatters].sum()),
    }
    remaining = float((ends - begins).sum()) - sum(by_class.values())
    return {**by_class, ClientTime.PROGRAM: max(remaining, 0.0)}


def _within(start: Array, stop: Array, begins: Array, ends: Array) -> Array:
    """Return for how many seconds each range `start` to `stop` overlaps other ranges.

    The other ranges, `begins` to `ends`, are sorted and disjoint.
    """
    first, last = np.fmax(start, -np.inf), np.fmax(np.where(np.isnan(stop), np.inf, stop), start)
    return overlap(first, last, begins, ends)


_TEXTS = ("kind", "name", "why", "held", "file", "code")
_NUMBERS = ("size", "seconds", "tasks", "line")
#: Minimum bytes of an embedded value that makes tasks slow to handle. Then minimum bytes of all its
#: copies in tasks.
_HEAVY, _ALL_HEAVY = 50_000, 5_000_000
#: Approximate seconds to handle a task without embedded values. Then bounds of the cost of an
#: embedded value: bytes per second, and how many times it is pickled, unpickled or copied.
_EMPTY, _SLOWEST, _TIMES = 0.001, 200e6, 30


@once_per_trace
def find_sent(run: Run) -> pd.DataFrame:
    """Return the values that graphs contain: one row per value and line, largest total first.

    The columns ``kind, name, file, line, why, held, code`` are those of `Trace.sent_values`.
    ``graphs`` and ``tasks`` are the numbers of graphs and of tasks that contain the value. ``size``
    (bytes) and ``seconds`` (of pickling the value once) are means over these graphs. ``total`` is
    the number of bytes in all tasks.
    """
    texts, numbers = dict.fromkeys(_TEXTS, object), dict.fromkeys(_NUMBERS, float)
    groups = run.sent_values.astype({**texts, **numbers})
    values = groups.groupby(["kind", "name", "file", "line"], dropna=False, sort=False).agg(
        why=("why", "first"),
        held=("held", "first"),
        code=("code", "first"),
        graphs=("tasks", "size"),
        tasks=("tasks", "sum"),
        size=("size", "mean"),
        seconds=("seconds", "mean"),
    )
    values = values.reset_index().astype({"file": object})  # Even if no file is known.
    values["total"] = values["size"] * values["tasks"]
    return values.sort_values("total", ascending=False, kind="stable", ignore_index=True)


@once_per_trace
def find_carried(run: Run) -> pd.DataFrame:
    """Return the rows of `find_sent` about large values that were embedded in several tasks."""
    values = find_sent(run)
    heavy = (values["size"] >= _HEAVY) & (values["total"] >= _ALL_HEAVY) & (values["tasks"] > 1)
    return values[heavy.to_numpy()]


def graph_costs(run: Run) -> tuple[float, float]:
    """Return the median seconds of preparing a graph in the scheduler, and the mean size of graphs.

    Both are NaN if unknown. The size (bytes) does not include large values that are embedded in
    graphs.
    """
    seconds = [graph["time"] - _taken_up(run, graph) for graph in run.graphs.to_dict("records")]
    sent, values = run.graphs_sent["size"], float(find_sent(run)["total"].sum())
    return float(np.median(seconds or np.nan)), (float(sent.sum()) - values) / max(len(sent), 1)


def seconds_of_carrying(run: Run, handling: float, handled: int) -> float:
    """Return the seconds by which embedded values prolonged the handling of tasks.

    `handled` is the number of all handled tasks, and `handling` is the seconds that their handling
    took.
    """
    carried, tasks = find_carried(run), len(run.tasks)
    each = np.fmax(carried["size"] / _SLOWEST, _TIMES * carried["seconds"])
    share = min(int(carried["tasks"].sum()) / tasks, 1.0) if tasks else 0.0
    excess = share * (handling - handled * _EMPTY)
    return max(min(excess, float((each * carried["tasks"]).sum())), 0.0)
