"""Arrival of graphs in a replay: at fixed intervals, or after results that clients waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasfprof.analysis.run import Run
from dasfprof.analysis.run.times import TaskTimes
from dasfprof.database.columns import Array

#: Threshold (seconds): without records of graphs, arrivals that are further apart belong to
#: different graphs.
_APART = 0.001
#: Maximum seconds from the end of a task to a graph that waited for it, if the client was silent
#: before.
_PROMPT = 0.02
#: Threshold (fraction of the graphs that come while tasks run): clients wait for results.
_MOSTLY = 0.8
#: Minimum number of graphs per open result, if the client limits the number of open results.
_GRAPHS_PER_OPEN_RESULT = 5


@dataclass(frozen=True)
class GraphSubmissions:
    """The graphs of a run in the order of arrival. A task run starts after its graph arrived."""

    #: Number of reported finishes after which each graph arrives, or 0 if it arrives a fixed time
    #: after the previous graph.
    finishes: Array
    #: Delay of each graph in seconds.
    delay: Array
    #: Seconds that the scheduler needs for each graph.
    span: Array
    #: Mask of runs whose finish is reported to a client.
    reported: Array


def find_submissions(run: Run, times: TaskTimes, threads: int) -> tuple[Array, GraphSubmissions]:
    """Return the graph that each run came with, and what each graph waited for.

    Dask does not record what a client waits for, so it is inferred. A graph that arrives when all
    requested results are finished is assumed to have waited for them. If most of the other graphs
    arrive promptly after the finish of a requested result, they are assumed to have waited for this
    result, as in clients that process results as they complete. The same holds if the client
    limits the number of open results. Otherwise, the client submits each graph a fixed time after
    the previous one.

    Parameters
    ----------
    threads
        Number of threads of the workers.

    Returns
    -------
    graph, submissions
        Graph of each run as an index, and the graphs.
    """
    arrival, reported = times.arrival, _reported_to_clients(run, len(times))
    if not len(arrival):
        none = np.empty(0, dtype=np.int64)
        return none, GraphSubmissions(none, np.empty(0), np.empty(0), reported)
    graph = _graph_of(run, arrival)
    count = int(graph.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, graph, arrival)
    came = _came_with_graph(run, len(arrival))
    np.maximum.at(last, graph[came], arrival[came])
    known, sizes = np.sort(times.known[reported]), np.bincount(graph[reported], minlength=count)
    before = np.cumsum(sizes) - sizes
    # A graph did not wait for a run that ended at the same time.
    simultaneous = np.bincount(graph[reported & (times.known <= first[graph])], minlength=count)
    finished = np.minimum(np.searchsorted(known, first, side="right") - simultaneous, before)
    since_finish = first - np.append(-np.inf, known)[finished]
    since_graph = np.diff(first, prepend=first[0])
    idle = (finished > 0) & (finished == before)
    others = (finished > 0) & ~idle
    prompt = others & (since_finish < _PROMPT) & (since_finish < since_graph / 2)
    # Some are prompt by chance.
    mostly_prompt = prompt.sum() >= _MOSTLY * others.sum()
    if _is_limited(before - finished, others, threads):
        waited = idle | others
    else:
        waited = idle | prompt if mostly_prompt else idle
    delay = np.maximum(np.where(waited, since_finish, since_graph), 0.0)
    return graph, GraphSubmissions(
        np.where(waited, finished, 0), delay, np.maximum(last - first, 0.0), reported
    )


def _is_limited(open_results: Array, others: Array, threads: int) -> bool:
    """Return whether the client limits how many results are open, as joblib's `pre_dispatch` does.

    Submitting at a fixed rate would leave threads idle, or more and more results open.
    """
    if not others.any():
        return False
    enough = open_results[others] + 1 >= threads
    few = open_results.max() * _GRAPHS_PER_OPEN_RESULT <= len(open_results)
    return bool(few and enough.mean() >= _MOSTLY)


def _reported_to_clients(run: Run, count: int) -> Array:
    """Return a mask of runs whose finish was reported to clients, or of all if not recorded."""
    if "wanted" not in run.tasks:
        return np.ones(count, dtype=bool)
    reported: Array = run.of_slots("wanted").astype(float) != 0
    return reported if reported.any() else np.ones(count, dtype=bool)


def _came_with_graph(run: Run, count: int) -> Array:
    """Return a mask of runs that arrived with a graph: the first run of a key, if recorded."""
    first_runs = np.zeros(count, dtype=bool)
    if "scheduler_waiting" in run.tasks:
        arrival = run.tasks["scheduler_waiting"].to_numpy(dtype=float)
        order = np.lexsort((arrival, run.tasks["key_id"].to_numpy()))
        key_ids = run.tasks["key_id"].to_numpy()[order]
        first = np.diff(key_ids, prepend=-1) != 0
        first_runs[order[first]] = np.isfinite(arrival[order[first]])
    return first_runs


def _graph_of(run: Run, arrival: Array) -> Array:
    """Return codes of the runs' graphs in order. Graphs without runs have no code."""
    if "scheduler_waiting" not in run.tasks:
        # Workers receive tasks later than the time at which a client requested them.
        return np.zeros(len(arrival), dtype=np.int64)
    came = np.sort(run.since_begin(run.graphs["time"]))
    came = came[np.isfinite(came)]
    if not len(came):
        ordered = np.sort(arrival)
        came = ordered[np.diff(ordered, prepend=-np.inf) > _APART]
    # Rounding of times must not put a run before its graph.
    indices = np.searchsorted(came, arrival + 1e-6, side="right")
    return np.unique(indices, return_inverse=True)[1]


class SimulatedClient:
    """All clients together, which submit the graphs of a run one after another.

    A graph is given as its time and number, or None if it has to wait for another finish.

    Parameters
    ----------
    submissions
        What each graph waits for.
    """

    def __init__(self, submissions: GraphSubmissions) -> None:
        self._needs: list[int] = submissions.finishes.tolist()
        self._delay: list[float] = submissions.delay.tolist()
        #: Times at which finishes were reported to clients.
        self._reported: list[float] = []
        #: Graph that waits for some of these, or 0.
        self.held_back = 0

    def submitted(self, graph: int, now: float) -> tuple[float, int] | None:
        """Record that a graph was submitted, and return the next one."""
        following = graph + 1
        if following >= len(self._needs):
            return None
        need, delay = self._needs[following], self._delay[following]
        if not need:
            return now + delay, following
        if len(self._reported) >= need:
            return max(now, self._reported[need - 1] + delay), following
        self.held_back = following
        return None

    def finished(self, now: float) -> tuple[float, int] | None:
        """Record that a finish is reported to a client, and return the graph that waited for it."""
        self._reported.append(now)
        graph = self.held_back
        if not graph or len(self._reported) < self._needs[graph]:
            return None
        self.held_back = 0
        return now + self._delay[graph], graph
